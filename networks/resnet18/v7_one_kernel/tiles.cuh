// Tiles of convolutions that follow each other in one kernel: part of kernel.cu.
#pragma once
#include <mini_dnn/implicit.cuh>

#include "flags.cuh"

namespace tiles {

using T = implicit::Tile<64, 64, 5, 1>;
constexpr int CLUSTER = 8, CONSUMERS = 128, THREADS = CONSUMERS + 32;
constexpr int SLOT_BYTES = 7 * 64 * 64 * 4 / 8;  // of sums from other blocks of a cluster
constexpr int SHARED_BYTES = T::STAGES * T::STAGE_BYTES + SLOT_BYTES;

struct Barriers {
  implicit::Barriers<T> ring;
  ptx::mbarrier landed, read;  // sums of other blocks have arrived; all blocks of the cluster have read theirs
};

// The flags of an array of images, and how often each is released. There is a flag for each 64 pixels or, after the
// stem, for each band of two rows of an image.
struct Flags {
  const int* first;
  int often, side, bands;
  // Waits until rows `top` of image n to `bottom` of image `to` are complete.
  __device__ __forceinline__ void wait(int n, int top, int to, int bottom) const {
    if (bands > 0)
      flags::acquire(first, n * bands + top / 2, to * bands + bottom / 2, often);
    else
      flags::acquire(first, (n * side + top) * side / 64, ((to * side + bottom) * side + side - 1) / 64, often);
  }
};

// A layer: its arrays, the flags that it waits for, and those that it releases.
struct Layer {
  implicit::Problem p;
  const ptx::TensorMap *x, *w, *more;
  const unsigned* residual;
  unsigned* y;
  const float* bias;
  Flags before, added;  // of x, and of the residual
  int* done;            // flags of 64 windows each
  int H, split;         // rows of an image of x; blocks that share a tile

  __device__ __forceinline__ int across() const { return p.K / 64; }
  __device__ __forceinline__ int count() const { return (p.windows + 63) / 64 * across(); }
  __device__ __forceinline__ int releases() const { return 4 * split * across(); }  // warps
  __device__ __forceinline__ int rounds() const { return (count() * split + int(gridDim.x) - 1) / int(gridDim.x); }
  __device__ __forceinline__ int tile(int round) const { return (round * gridDim.x + blockIdx.x) / split; }
  __device__ __forceinline__ int rank() const { return blockIdx.x % split; }
  __device__ __forceinline__ int first() const { return p.steps() * rank() / split; }
  __device__ __forceinline__ int last() const { return p.steps() * (rank() + 1) / split; }

  // Waits for all pixels of 64 windows, or for the residual that is added to their sums.
  __device__ __forceinline__ void wait(int window, bool for_sums = false) const {
    const int end = min(window + 64, p.windows) - 1, each = p.P * p.Q;
    const int n = window / each, row = (window - n * each) / p.Q, to = end / each, below = (end - to * each) / p.Q;
    if (for_sums)
      added.wait(n, row, to, below);
    else
      before.wait(n, max(row * p.stride - p.padding, 0), to, min(below * p.stride + p.padding, H - 1));
  }
};

using Stage = implicit::Stage<T::STAGES>;

// One thread requests pixels and weights. Before it waits for pixels, it requests weights for all free stages.
__device__ __forceinline__ void produce(const Layer& l, char* memory, Barriers& barriers, Stage& stage) {
  const implicit::Problem& p = l.p;
  const int first = l.first(), last = l.last(), own = p.own_steps();
  for (int round = 0; round < l.rounds(); round++) {
    const int tile = l.tile(round);
    if (tile >= l.count()) continue;
    const int row = tile / l.across(), column = (tile - row * l.across()) * 64, window = row * 64;
    const int n = window / (p.P * p.Q), in_image = window - n * (p.P * p.Q), down = in_image / p.Q;
    const int right = in_image - down * p.Q;
    Stage ahead = stage;
    int asked = first;
    auto ask = [&] {
      ptx::mbarrier* const full = barriers.ring.full + ahead.index;
      ptx::mbarrier_wait(barriers.ring.empty + ahead.index, ahead.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, T::STAGE_BYTES);
      ptx::tensor_load(memory + ahead.index * T::STAGE_BYTES + T::A_BYTES, *l.w, asked * implicit::STEP, column, full);
      ahead.next(), asked++;
    };
    while (asked < min(first + T::STAGES, last)) ask();
    l.wait(window);
    implicit::Place place(p, first);
#pragma unroll 1
    for (int step = first; step < last; step++, stage.next()) {
      if (step == asked) ask();
      char* const to = memory + stage.index * T::STAGE_BYTES;
      ptx::mbarrier* const full = barriers.ring.full + stage.index;
      if (step < own) {
        ptx::tensor_load_windows(to, *l.x, place.c, right * p.stride - p.padding, down * p.stride - p.padding, n, full,
                                 place.s, place.r);
        place.next(p);
      } else {
        ptx::tensor_load_windows(to, *l.more, (step - own) * implicit::STEP, right * p.more_stride,
                                 down * p.more_stride, n, full, 0, 0);
      }
    }
  }
}

// Blocks that share a tile send each other parts of its sums, and each one completes its own columns. `round` counts
// all rounds, and `shared` those in which sums are sent.
template <int SPLIT>
__device__ __forceinline__ void finish(const Layer& l, float (&d)[8][4], float4* slots, Barriers& barriers, int row,
                                       int column, int round, int shared) {
  constexpr int PART = 8 / SPLIT;
  const implicit::Problem& p = l.p;
  const int rank = blockIdx.x % SPLIT, base = blockIdx.x % CLUSTER - rank, lane = threadIdx.x % 32;
  float sum[PART][4];
#pragma unroll
  for (int block = 0; block < SPLIT; block++)
    if (block == rank)
#pragma unroll
      for (int i = 0; i < PART * 4; i++) sum[i / 4][i % 4] = d[block * PART + i / 4][i % 4];
  if constexpr (SPLIT > 1) {
    if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(&barriers.landed, (SPLIT - 1) * PART * CONSUMERS * 16);
    if (round > 0) ptx::mbarrier_wait(&barriers.read, (round - 1) % 2);  // the slots are free, in all blocks
#pragma unroll
    for (int block = 0; block < SPLIT; block++) {
      if (block == rank) continue;
      float4* const to =
          ptx::cluster_shared(slots + (rank - (rank > block)) * PART * CONSUMERS + threadIdx.x, base + block);
      ptx::mbarrier* const there = ptx::cluster_shared(&barriers.landed, base + block);
#pragma unroll
      for (int i = 0; i < PART; i++) {
        const float (&four)[4] = d[block * PART + i];
        ptx::store_async(&to[i * CONSUMERS].x, make_float4(four[0], four[1], four[2], four[3]), there);
      }
    }
    ptx::mbarrier_wait(&barriers.landed, shared % 2);
#pragma unroll
    for (int other = 0; other < SPLIT - 1; other++)
#pragma unroll
      for (int i = 0; i < PART; i++) {
        const float4 four = slots[(other * PART + i) * CONSUMERS + threadIdx.x];
        sum[i][0] += four.x, sum[i][1] += four.y, sum[i][2] += four.z, sum[i][3] += four.w;
      }
  }
  const int upper = row + lane / 4;
  const long long place = ((long long)upper * p.K + column + rank * PART * 8 + lane % 4 * 2) / 2;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    if (upper + 8 * h >= p.windows) continue;
#pragma unroll
    for (int i = 0; i < PART; i++) {
      const long long at = place + 4 * i + 4ll * h * p.K;
      l.y[at] = implicit::finish(p, sum[i][2 * h], sum[i][2 * h + 1], p.residual ? l.residual[at] : 0);
    }
  }
}

// Four warps process all rounds of a layer.
__device__ __forceinline__ void consume(const Layer& l, char* memory, Barriers& barriers, Stage& stage, int& round,
                                        int& shared) {
  float4* const slots = reinterpret_cast<float4*>(memory + T::STAGES * T::STAGE_BYTES);
  const int lane = threadIdx.x % 32, end = round + l.rounds();
  for (int i = 0; round < end; i++, round++) {
    const int tile = l.tile(i);
    if (tile < l.count()) {
      const int above = tile / l.across(), row = above * 64 + threadIdx.x / 32 * 16;
      const int column = (tile - above * l.across()) * 64;
      if (l.p.residual) l.wait(above * 64, true);  // by each thread that reads it
      float d[8][4];
      implicit::multiply<T>(d, memory, barriers.ring, stage, l.bias + column, l.first(), l.last());
      switch (l.split) {
        case 8:
          finish<8>(l, d, slots, barriers, row, column, round, shared);
          break;
        case 4:
          finish<4>(l, d, slots, barriers, row, column, round, shared);
          break;
        case 2:
          finish<2>(l, d, slots, barriers, row, column, round, shared);
          break;
        default:
          finish<1>(l, d, slots, barriers, row, column, round, shared);
      }
      shared += l.split > 1;
      __syncwarp();
      if (lane == 0) flags::release(l.done + above);  // for what its warp has written
    }
    __syncwarp();
    if (round > 0) ptx::mbarrier_wait(&barriers.read, (round - 1) % 2);  // a block without a tile must not arrive twice
    __syncwarp();  // and no lane may still wait for the previous phase when this one ends
    if (lane < CLUSTER) ptx::mbarrier_arrive_cluster(&barriers.read, lane);
  }
}

}  // namespace tiles
