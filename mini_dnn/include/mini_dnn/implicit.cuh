// A convolution as a product of matrices of which one is never stored: #include <mini_dnn/implicit.cuh>
//
// y (N P Q, K) = windows (N P Q, R R C) x weights, in halves with sums in fp32. A tile is ROWS windows by COLUMNS
// output channels. A step is one position in the filter and 64 channels. For each step, one warp loads the pixels of
// ROWS windows at this position, 128 bytes each, and 64 weights of each output channel. Warpgroups multiply 64 windows
// each. After the last position there may be steps of a second convolution of one pixel, with other images and other
// windows: the shortcut of a network. Sums start with the bias, and residual and ReLU are applied at the end. If there
// are few tiles, a cluster of SPLIT blocks shares the steps of a tile, and each block completes a part of its columns.
//
// Weights, bias and positions do not depend on the previous kernel, so the first weights are requested before the wait
// for it.
#pragma once
#include <mini_dnn/ptx_im2col.cuh>

#ifdef PTX_BULK
namespace implicit {

constexpr int STEP = 64;  // channels, which are 128 bytes

struct Problem {
  int windows, K, P, Q;       // windows: N P Q
  int C, R, stride, padding;  // parameters of the convolution
  int more_C, more_stride;    // parameters of the shortcut; if more_C is 0, there is none
  bool relu, residual;
  __device__ __forceinline__ int own_steps() const { return R * R * C / STEP; }
  __device__ __forceinline__ int steps() const { return own_steps() + more_C / STEP; }
};

struct Arrays {
  const ptx::TensorMap &x, &more, &w, &residual_map, &y_map;
  const unsigned* residual;  // two halves in each element
  unsigned* y;
  const float* bias;
};

template <int ROWS_, int COLUMNS_, int STAGES_, int SPLIT_>
struct Tile {
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, STAGES = STAGES_, SPLIT = SPLIT_;
  static constexpr int CONSUMERS = ROWS / 64, WARPS = CONSUMERS * 4, THREADS = CONSUMERS * 128 + 32;
  static constexpr int A_BYTES = ROWS * STEP * 2, B_BYTES = COLUMNS * STEP * 2, STAGE_BYTES = A_BYTES + B_BYTES;
  static constexpr int GROUPS = COLUMNS / 8, PART = GROUPS / SPLIT;    // groups of 8 columns; those of one block
  static constexpr int SLOT = CONSUMERS * 128;                         // one float4 for each thread
  static constexpr int PIECES = COLUMNS / 64, PIECE_BYTES = 16 * 128;  // 16 rows of a warp before they are stored
  static_assert(ROWS % 64 == 0 && COLUMNS % 64 == 0 && GROUPS % SPLIT == 0, "whole boxes, equal parts");
};

// The position in the ring, and the parity of its phase.
template <int STAGES>
struct Stage {
  int index = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++index == STAGES) index = 0, parity ^= 1;
  }
};

template <class T>
struct Barriers {
  ptx::mbarrier full[T::STAGES], empty[T::STAGES], landed, residual[T::WARPS];
};

// The position of a step in the filter, and its channels.
struct Place {
  int r, s, c;
  __device__ __forceinline__ Place(const Problem& p, int step) {
    const int each = p.C / STEP, tap = step / each;
    c = (step - tap * each) * STEP, r = tap / p.R, s = tap - r * p.R;
  }
  __device__ __forceinline__ void next(const Problem& p) {
    if ((c += STEP) < p.C) return;
    c = 0;
    if (++s == p.R) s = 0, r++;
  }
};

// One thread requests all tiles of this block, step by step.
template <class T>
__device__ __forceinline__ void produce(const Problem& p, const Arrays& at, char* memory, Barriers<T>& barriers,
                                        int count, int across, int first, int last) {
  Stage<T::STAGES> stage;
  const int own = p.own_steps(), before_wait = min(T::STAGES, last - first);
  bool waited = false;
  for (int i = blockIdx.x / T::SPLIT; i < count; i += gridDim.x / T::SPLIT) {
    const int row = i / across, column = (i - row * across) * T::COLUMNS, window = row * T::ROWS;
    const int n = window / (p.P * p.Q), in_image = window - n * (p.P * p.Q), down = in_image / p.Q;
    const int right = in_image - down * p.Q;
    auto load_w = [&](int index, int step) {
      ptx::mbarrier_arrive_expect_tx(barriers.full + index, T::STAGE_BYTES);
      ptx::tensor_load(memory + index * T::STAGE_BYTES + T::A_BYTES, at.w, step * STEP, column, barriers.full + index);
    };
    if (!waited) {  // all stages are empty
      for (int j = 0; j < before_wait; j++) load_w(j, first + j);
      ptx::grid_wait();
    }
    Place place(p, first);
#pragma unroll 1
    for (int step = first; step < last; step++, stage.next()) {
      char* const to = memory + stage.index * T::STAGE_BYTES;
      ptx::mbarrier* const ready = barriers.full + stage.index;
      if (waited || step - first >= before_wait) {
        ptx::mbarrier_wait(barriers.empty + stage.index, stage.parity ^ 1);
        load_w(stage.index, step);
      }
      if (step < own) {
        ptx::tensor_load_windows(to, at.x, place.c, right * p.stride - p.padding, down * p.stride - p.padding, n, ready,
                                 place.s, place.r);
        place.next(p);
      } else {
        ptx::tensor_load_windows(to, at.more, (step - own) * STEP, right * p.more_stride, down * p.more_stride, n,
                                 ready, 0, 0);
      }
    }
    waited = true;
  }
}

#include "implicit_sums.cuh"

// Processes a block's tiles. `memory` has the stages, then the results of warps or sums of other blocks; it is aligned
// to 1024 bytes.
template <class T>
__device__ __forceinline__ void convolve(const Problem& p, const Arrays& at, char* memory) {
  __shared__ Barriers<T> barriers;
  const int across = p.K / T::COLUMNS, count = (p.windows + T::ROWS - 1) / T::ROWS * across, steps = p.steps();
  const int rank = T::SPLIT > 1 ? ptx::cluster_rank() : 0;
  const int first = T::SPLIT > 1 ? steps * rank / T::SPLIT : 0;
  const int last = T::SPLIT > 1 ? steps * (rank + 1) / T::SPLIT : steps;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), lane = threadIdx.x % 32;
  char* const staged = memory + T::STAGES * T::STAGE_BYTES;
  if (threadIdx.x == T::CONSUMERS * 128) {
    ptx::tensor_prefetch(at.x);
    ptx::tensor_prefetch(at.w);
    for (int i = 0; i < T::STAGES; i++) {
      ptx::mbarrier_init(barriers.full + i, 1);
      ptx::mbarrier_init(barriers.empty + i, T::WARPS);
    }
    for (int i = 0; i < T::WARPS; i++) ptx::mbarrier_init(barriers.residual + i, 1);
    ptx::mbarrier_init(&barriers.landed, 1);
    if (T::SPLIT > 1) ptx::mbarrier_arrive_expect_tx(&barriers.landed, (T::SPLIT - 1) * T::PART * T::SLOT * 16);
    if (T::SPLIT > 1) ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();
  }
  __syncthreads();  // the mbarriers are initialised
  if (T::SPLIT > 1) ptx::cluster_arrive_relaxed();
  ptx::grid_launch_dependents();

  if (warpgroup >= T::CONSUMERS) {
    if (lane == 0) produce<T>(p, at, memory, barriers, count, across, first, last);
    __syncwarp();
    if (T::SPLIT > 1) ptx::cluster_wait();
  } else {
    const int warp = threadIdx.x / 32;
    char* const own = staged + warp * T::PIECES * T::PIECE_BYTES;
    Stage<T::STAGES> stage;
    int phase = 0;  // of the residual's mbarrier
    for (int i = blockIdx.x / T::SPLIT; i < count; i += gridDim.x / T::SPLIT, phase ^= 1) {
      const int row = i / across * T::ROWS + warp * 16, column = i % across * T::COLUMNS;
      if (T::SPLIT == 1 && lane == 0) {
        ptx::bulk_wait_read<0>();  // the previous contents have been read
        if (p.residual) {
          ptx::grid_wait();
          ptx::mbarrier_arrive_expect_tx(barriers.residual + warp, T::PIECES * T::PIECE_BYTES);
#pragma unroll
          for (int j = 0; j < T::PIECES; j++)
            ptx::tensor_load(own + j * T::PIECE_BYTES, at.residual_map, column + 64 * j, row, barriers.residual + warp);
        }
      }
      __syncwarp();
      float d[T::GROUPS][4];
      multiply<T>(d, memory, barriers, stage, at.bias + column, first, last);
      if constexpr (T::SPLIT == 1) {
        if (p.residual) ptx::mbarrier_wait(barriers.residual + warp, phase);
        store<T>(p, at, d, own, row, column);
      } else {
        add_up<T>(p, at, d, reinterpret_cast<float4*>(staged), &barriers.landed, rank, row, column);
      }
    }
    if (T::SPLIT == 1 && lane == 0) ptx::bulk_wait<0>();  // all results are stored
  }
  if (T::SPLIT > 1) {  // others may still write to this block
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}

}  // namespace implicit

// A kernel for tiles of one kind, with `blocks` blocks per multiprocessor. mini_dnn/plans/implicit.py launches it.
// IMPLICIT_GLOBAL keeps tools that read declarations from taking the definition of IMPLICIT_KERNEL for a kernel.
#define IMPLICIT_GLOBAL extern "C" __global__ void
#define IMPLICIT_KERNEL(name, rows, columns, stages, split, blocks)                                                \
  IMPLICIT_GLOBAL __launch_bounds__(implicit::Tile<rows, columns, stages, split>::THREADS, blocks)                 \
      name(const __grid_constant__ ptx::TensorMap x, const __grid_constant__ ptx::TensorMap more,                  \
           const __grid_constant__ ptx::TensorMap w, const __grid_constant__ ptx::TensorMap residual_map,          \
           const __grid_constant__ ptx::TensorMap y_map, const unsigned* residual, unsigned* y, const float* bias, \
           int windows, int K, int P, int Q, int C, int R, int stride, int padding, int more_C, int more_stride,   \
           int relu, int adds) {                                                                                   \
    extern __shared__ __align__(1024) char memory[];                                                               \
    const implicit::Problem problem{                                                                               \
        windows, K, P, Q, C, R, stride, padding, more_C, more_stride, relu != 0, adds != 0};                       \
    const implicit::Arrays arrays{x, more, w, residual_map, y_map, residual, y, bias};                             \
    implicit::convolve<implicit::Tile<rows, columns, stages, split>>(problem, arrays, memory);                     \
  }
#endif
