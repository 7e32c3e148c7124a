// networks/resnet18/v7_one_kernel: one launch, in which tiles wait for the tiles that they depend on.
//
// Idea      Between two kernels, all blocks wait for the slowest one. A tile of a convolution needs only the rows
//           around it, and here it waits only for those. Each group of 64 pixels of a layer has a flag in global
//           memory. Every warp that has written some of them increments it, and tiles that need them wait for the full
//           count (flags.cuh). Meanwhile the first weights of the tile are loaded, because they depend on no other
//           tile. Blocks that share a tile exchange sums as in v6_graph, and signal through an mbarrier when they have
//           read them (tiles.cuh). The stem and the head are part of the kernel.
// Layout    as networks/resnet18/v5_fused; each layer has its own array, because no block knows when all others have
//           finished reading an array. Flags: bands of two rows after the stem, 64 pixels of each layer, and the count
//           of blocks that have finished.
// Mapping   16 clusters of 8 blocks, or one if a network has few steps. Four warps multiply, one loads pixels and
//           weights. Tiles of 64 x 64 are assigned to blocks in turn; 1 to 8 blocks share one, as many as a stage has
//           room for.
// Roofline  one image: 16 layers of 3 us, the stem of 4 and the head of 4 are 0.055 ms. Each layer takes 0.7 us for a
//           flag (release, acquire), 1 for the first pixels, 0.3 to 0.7 for weights at 55 bytes per clock, and 1 for
//           the sums of a cluster.
// Gain      over networks/resnet18/v6_graph with one image: a factor of 0.9 to 1.2 was expected, because an early
//           launch costs 0.5 us, no more than a flag, and also loads its weights early. It is slower in fact, because a
//           flag costs twice as much as that.
// Limits    as networks/resnet18/v5_fused; at most 16 convolutions after the stem and 8 images. All blocks must run at
//           once, because waiting blocks could otherwise prevent others from starting. Two fit on a multiprocessor.
//           `check` runs one cluster at a time, so it supports only networks of one cluster.
// Hazards   Flags:
//           - Plain stores are ordered before a flag by a fence of the GPU, and before reads of the copy engine by a
//             fence between proxies, on both sides. Each thread that reads a residual checks its flags itself.
//           - The last block clears the flags for the next launch.
//           - If a flag is not released, blocks wait for ever, which `check` reports as endless. A flag without its
//             fence is reported as a race (tests/test_resnet_flags.py).
//           The mbarrier that counts readers of sums:
//           - A block without a tile may not run ahead, because it would arrive twice in one phase.
//           - Arrivals are relaxed, and the memory model does not order plain loads of sums before them. The loads are
//             complete nevertheless, because the sums have been added and written; an arrival with release would not
//             depend on that.
//           - Phases are identified by parity, so no lane may still wait for a phase when the next one ends.
// Source    B. Spector et al., "Look Ma, No Bubbles! Designing a Low-Latency Megakernel for Llama-1B", 2025.
#include <mini_dnn/residual.cuh>

#include "tiles.cuh"

#if IMAGES == 8
typedef unsigned char Pixel;
#elif IMAGES == 16
typedef half Pixel;
#else
typedef float Pixel;
#endif

using Stem = stem::Tile<2, 14, 1>;
constexpr int MOST = 16;  // convolutions after the stem
constexpr int STAGES = 4;
static_assert(2 * (BLOCKS_1 + BLOCKS_2 + BLOCKS_3 + BLOCKS_4) <= MOST, "parameters of the kernel");

// Flags: first those of the stem's bands, then those of each layer's groups of 64 windows, then the number of blocks
// that have finished.
__device__ __forceinline__ int bands(int side) { return (side + 1) / 2; }
__device__ __forceinline__ int units(int N, int side) { return (N * side * side + 63) / 64; }

// Calls f(layer) for all layers in order.
template <class Each>
__device__ __forceinline__ void each_layer(int N, int side, const ptx::TensorMap* const (&x)[MOST],
                                           const ptx::TensorMap* const (&w)[MOST],
                                           const ptx::TensorMap* const (&more)[STAGES], half* const (&y)[MOST + 1],
                                           const float* const (&bias)[MOST], int* flags, Each f) {
  const int widths[STAGES] = {WIDTH_1, WIDTH_2, WIDTH_3, WIDTH_4},
            blocks[STAGES] = {BLOCKS_1, BLOCKS_2, BLOCKS_3, BLOCKS_4};
  const int strides[STAGES] = {STRIDE_1, STRIDE_2, STRIDE_3, STRIDE_4},
            splits[STAGES] = {SPLIT_1, SPLIT_2, SPLIT_3, SPLIT_4};
  int* done = flags + N * bands(side);
  int C = WIDTH_1, H = side, at = 0;
  tiles::Flags before{flags, (side + Stem::POOL_COLUMNS - 1) / Stem::POOL_COLUMNS * (C / 64), side, bands(side)};
  for (int stage = 0; stage < STAGES; stage++) {
    for (int block = 0; block < blocks[stage]; block++) {
      const int stride = block == 0 ? strides[stage] : 1, K = widths[stage], P = (H - 1) / stride + 1;
      const bool shortcut = stride != 1 || C != K;
      const tiles::Flags added = before;
      for (int second = 0; second < 2; second++, at++) {
        tiles::Layer l;
        l.p = second ? implicit::Problem{N * P * P, K, P, P, K, 3, 1, 1, shortcut ? C : 0, stride, true, !shortcut}
                     : implicit::Problem{N * P * P, K, P, P, C, 3, stride, 1, 0, 1, true, false};
        l.x = x[at], l.w = w[at], l.more = more[stage];
        l.residual = reinterpret_cast<const unsigned*>(second ? y[at - 1] : y[at]);
        l.y = reinterpret_cast<unsigned*>(y[at + 1]), l.bias = bias[at];
        l.before = before, l.added = added, l.done = done, l.H = second ? P : H, l.split = splits[stage];
        f(l);
        before = {done, l.releases(), P, 0};
        done += units(N, P);
      }
      C = K, H = P;
    }
  }
}

// All threads compute parts of the stem, and release the flags of their bands.
__device__ __forceinline__ void make_stem(const stem::Source<Pixel>& from, const char* w, const float* bias,
                                          const stem::Sizes& s, half* y, char* memory, ptx::mbarrier* ready, int* flags,
                                          int N) {
  const int across = (s.side_out + Stem::POOL_COLUMNS - 1) / Stem::POOL_COLUMNS, down = bands(s.side_out);
  const int channels = s.K / stem::COLUMNS, count = N * across * down * channels;
  for (int i = blockIdx.x; i < count; i += gridDim.x) {
    const int n = i / (across * down * channels), rest = i - n * across * down * channels;
    const int band = rest / (across * channels), left = rest / channels % across * Stem::POOL_COLUMNS;
    const int parity = (i - int(blockIdx.x)) / int(gridDim.x) % 2;
    stem::make<Stem, Pixel>(from, w, bias, s, reinterpret_cast<uint4*>(y), memory, ready, parity, n,
                            band * Stem::POOL_ROWS, left, rest % channels * stem::COLUMNS);
    __syncthreads();  // all threads have written their results, and read shared memory
    if (threadIdx.x == 0) flags::release(flags + n * down + band);
  }
}

// All threads compute the scores of some classes of all images.
__device__ __forceinline__ void score(const half* x, const float* w, const float* bias, float* scores, float* means,
                                      const int* done, int often, int N, int pixels, int C, int classes) {
  for (int n = 0; n < N; n++) {
    if (threadIdx.x == 0) flags::acquire(done, n * pixels / 64, ((n + 1) * pixels - 1) / 64, often);
    __syncthreads();  // all pixels of the image are complete, and the means of the previous one have been read
    for (int c = 2 * threadIdx.x; c < C; c += 2 * blockDim.x) {
      float2 sum = {0, 0};
#pragma unroll 7
      for (int i = 0; i < pixels; i++) {
        const float2 two =
            ptx::unpack_halves(*reinterpret_cast<const unsigned*>(x + ((long long)n * pixels + i) * C + c));
        sum.x += two.x, sum.y += two.y;
      }
      means[c] = sum.x / pixels, means[c + 1] = sum.y / pixels;
    }
    __syncthreads();  // all means are complete
    const int warps = blockDim.x / 32;
    for (int k = blockIdx.x * warps + threadIdx.x / 32; k < classes; k += gridDim.x * warps) {
      const float score = residual::Class(w + (long long)k * C, C).score(means);
      if (threadIdx.x % 32 == 0) scores[(long long)n * classes + k] = score + bias[k];
    }
  }
}

#define EACH(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15)
#define MAPS(i) const __grid_constant__ ptx::TensorMap x##i, const __grid_constant__ ptx::TensorMap w##i,
#define ARRAYS(i) half *y##i, const float *bias##i,

extern "C" __global__ void __launch_bounds__(tiles::THREADS, 2)
    whole(EACH(MAPS) const __grid_constant__ ptx::TensorMap more1, const __grid_constant__ ptx::TensorMap more2,
          const __grid_constant__ ptx::TensorMap more3, const __grid_constant__ ptx::TensorMap more4,
          EACH(ARRAYS) half* stem_y, const Pixel* images, const float* mean, const float* deviation, const half* stem_w,
          const float* stem_bias, const float* fc_w, const float* fc_bias, float* scores, int* flags, int N,
          int channels, int side, int conv_side, int side_out, int flag_count, int classes) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ tiles::Barriers barriers;
  __shared__ ptx::mbarrier ready;
#define X(i) &x##i,
#define W(i) &w##i,
#define Y(i) y##i,
#define BIAS(i) bias##i,
  const ptx::TensorMap *const x[MOST] = {EACH(X)}, *const w[MOST] = {EACH(W)};
  const ptx::TensorMap* const more[STAGES] = {&more1, &more2, &more3, &more4};
  half* const y[MOST + 1] = {stem_y, EACH(Y)};
  const float* const bias[MOST] = {EACH(BIAS)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < tiles::T::STAGES; i++) {
      ptx::mbarrier_init(barriers.ring.full + i, 1);
      ptx::mbarrier_init(barriers.ring.empty + i, tiles::T::WARPS);
    }
    ptx::mbarrier_init(&barriers.landed, 1);
    ptx::mbarrier_init(&barriers.read, tiles::CLUSTER * tiles::T::WARPS);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_init(&ready, 1);
    ptx::fence_proxy_async();
  }
  __syncthreads();  // the mbarriers are initialised
  ptx::cluster_arrive_relaxed();
  make_stem({images, mean, deviation}, reinterpret_cast<const char*>(stem_w), stem_bias,
            {channels, side, conv_side, side_out, WIDTH_1}, stem_y, memory, &ready, flags, N);
  ptx::fence_proxy_async();
  __syncthreads();  // the stem's part of shared memory may be written by the copy engine
  ptx::cluster_wait();

  const int* done = nullptr;
  int often = 0, side_last = 0, round = 0, shared = 0, count = 0;
  tiles::Stage stage;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  each_layer(N, side_out, x, w, more, y, bias, flags, [&](const tiles::Layer& l) {
    if (warp < tiles::T::WARPS) {
      tiles::consume(l, memory, barriers, stage, round, shared);
    } else if (threadIdx.x % 32 == 0) {
      tiles::produce(l, memory, barriers, stage);
    }
    done = l.done, often = l.releases(), side_last = l.p.P, count++;
  });
  __syncthreads();  // stages are no longer needed
  score(y[count], fc_w, fc_bias, scores, reinterpret_cast<float*>(memory), done, often, N, side_last * side_last,
        WIDTH_4, classes);
  __syncthreads();  // all threads of the block have seen their flags
  if (threadIdx.x == 0) {
    __threadfence();
    if (atomicAdd(flags + flag_count, 1) == int(gridDim.x) - 1) {  // the last block: the flags are no longer read
      __threadfence();
      for (int i = 0; i <= flag_count; i++) flags[i] = 0;
    }
  }
  ptx::cluster_sync();  // others may still arrive here
}

// ---- Done once

extern "C" __global__ void clear(int* flags, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) flags[i] = 0;
}

extern "C" __global__ void fold(const float* w, const float* gain, const float* shift, const float* mean,
                                const float* variance, half* to, float* bias, int K, int C, int R, int lines, int wide,
                                int pitch, int offset, int adds) {
  residual::fold(w, {gain, shift, mean, variance}, to, bias, K, C, R, lines, wide, pitch, offset, adds != 0,
                 (long long)blockIdx.x * blockDim.x + threadIdx.x);
}

extern "C" __global__ void fold_stem(const float* w, const float* gain, const float* shift, const float* mean,
                                     const float* variance, half* to, float* bias, int K, int C, int lines) {
  residual::fold_stem(w, {gain, shift, mean, variance}, to, bias, K, C, lines, blockIdx.x * blockDim.x + threadIdx.x);
}
