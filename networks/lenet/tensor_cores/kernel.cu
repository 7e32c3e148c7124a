// networks/lenet/tensor_cores: LeNet in two kernels on the tensor cores: images to features, features to classes.
//
// Idea      networks/lenet/whole with the products of layers/custom: quads of the image (mini_dnn/quads.cuh) are packed
//           once, and the windows of the first layer are maxima over the sums of a lane and its neighbour. Their
//           results, four adjacent channels, are the pairs or quads of the second layer. The linear layers are also
//           products.
// Layout    images (N,1,86,86) bytes or fp32, or (N,1,28,28) bytes; features (N,1296) halves; weights as in
//           models/lenet.py, fp32, C order. Dynamic shared memory: an fp32 image, its quads (43,43), pool1 (40,40) as
//           pairs or quads with zeros below, and the fragments of the first layer's filters.
// Mapping   features: persistent blocks fetch images from a counter, or with FEW images have one each; pixels.cuh packs
//           them. In the first layer, a warp processes jobs of 8 columns of quads and 20 rows (10 jobs). In the second
//           layer, a warpgroup processes tiles of 8 pairs of columns and 9 pairs of rows, two tiles below each other,
//           and one tile for the pair of columns at the right edge. Before sm_90a, a warp processes jobs of 12 rows of
//           quads (13 jobs). classify, linear.cuh: a block -> 32 images, its 8 warps -> parts of the 1,296 features,
//           added at the end.
// Roofline  bytes: images in, features out and in: 0.35 GB at N = 10,000, 0.08 ms at 4.3 TB/s. Products per image: 800
//           of mma.sync and 64 + 16 of wgmma (n = 72, 24). They take 0.06 + 0.11 ms at 0.6 and 0.9 PFLOP/s, the rates
//           of loops without other instructions.
// Gain      over networks/lenet/whole: 0.28 ms expected instead of at least 1.5 ms of fp32 FMAs. The expectation
//           assumes that the tensor cores are busy two thirds of the time, as in layers/fused. A single image gets
//           twelve warps instead of four, and needs no counter.
// Limits    values beyond 65,504 become infinite; pixels and pool1 are rounded to halves (11 bits).
// Hazards   two barriers per image. After the first, pixels are packed, so the next image may arrive. After the second,
//           pool1 is complete. The last products read rows below pool1 for sums that are ignored; these rows are zeros.
// Source    as layers/custom and networks/lenet/whole.
#include <cuda_fp16.h>
#include <mini_dnn/pairs.cuh>

typedef quads::Filter<1, 4, 7, 7> Filter1;
constexpr int SIDE = 86, QUADS = SIDE / 2;       // of the image
constexpr int SIDE1 = 40, OUT2 = 34, SIDE2 = 9;  // pool1, the output of the second layer, pool2
constexpr int FEATURES = 1296, HIDDEN = 32, CLASSES = 10;
constexpr int STRIP1 = 20;  // rows of quads of a job of the first layer

#include "pixels.cuh"

// pool1 in shared memory, with rows of zeros below it: halves, four channels side by side.
#ifdef PTX_WGMMA
typedef pairs::Filter<4, 16, 7, 7> Filter2;
constexpr int WARPGROUPS = THREADS / 128;
constexpr int GROUPS = 9, TILES = 2;  // pairs of rows of a product, and how many products below each other
constexpr pairs::Layout pool1_at = pairs::Layout::of<Filter2>(2 * GROUPS * TILES, OUT2, GROUPS);
constexpr int BYTES_OF_POOL1 = pairs::slot_bytes * pool1_at.size;
#else
typedef quads::Filter<4, 16, 7, 7> Filter2;
constexpr int STRIP2 = 12, STRIPS2 = 3;  // rows of quads of a job of the second layer, and jobs below each other
constexpr int BYTES_OF_POOL1 = 8 * ((STRIPS2 * STRIP2 + 6) * SIDE1 + 1);  // and a quad after the rows of zeros
#endif

// After the image and its quads.
constexpr int AT_POOL1 = AT_QUADS + round_up(8 * QUADS * QUADS);
constexpr int AT_FILTER1 = AT_POOL1 + round_up(BYTES_OF_POOL1);
static_assert(AT_FILTER1 + 4 * 32 * int(sizeof(Filter1::a) / 4) <= SHARED_BYTES, "variant.py asks for enough");

// First convolution, ReLU and 2 x 2 maximum: job of 8 columns and STRIP1 rows of quads, which are windows.
__device__ __forceinline__ void layer1(const Filter1& filter, const uint2* quad, __half* pool1, int job) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, dy = Filter1::dy(g);
  const int row = job % 2 * STRIP1, first = job / 2 * quads::tile_n, column = first + 2 * t + dy;
#ifdef PTX_WGMMA
  constexpr pairs::Layout at = pool1_at;
  __half* const out = pool1 + 8 * (row / 2 * at.pitch + column / 2) + column % 2 * 4 + Filter1::m(g);
  __half* const edge =
      pool1 + 8 * (at.edge + (column / 2 - at.first) * 2 * at.edge_pitch + row / 2) + column % 2 * 4 + Filter1::m(g);
  auto put = [&](int p, __half value) {
    if (column / 2 < at.pitch) out[8 * (p % 2 * at.plane + p / 2 * at.pitch)] = value;
    if (first / 2 >= at.first) edge[8 * (p % 2 * at.edge_pitch + p / 2)] = value;
  };
#else
  __half* const out = pool1 + (row * SIDE1 + column) * 4 + Filter1::m(g);
  auto put = [&](int p, __half value) { out[p * SIDE1 * 4] = value; };
#endif
  quads::multiply<STRIP1>(filter, quad + row * QUADS + first + g + t, QUADS, [&](int p, const float (&sum)[4]) {
    // columns 2t and 2t + 1; a lane has one pixel row of both windows, and takes one of them
    const float left = ptx::max_nan(sum[0], sum[2]), right = ptx::max_nan(sum[1], sum[3]);
    const float other = __shfl_xor_sync(~0u, dy ? left : right, 16);
    put(p, __float2half(ptx::max_nan(ptx::max_nan(dy ? right : left, other), 0.0f)));
  });
}

// Second convolution, ReLU and 4 x 4 maximum; windows at the lower and right edges are truncated. (16,9,9) features.
#ifdef PTX_WGMMA
__device__ __forceinline__ void layer2(const Filter2& filter, const void* pool1, __half* features) {
  constexpr pairs::Layout at = pool1_at;
  const uint4* const slot = static_cast<const uint4*>(pool1);
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  __half* const out = features + Filter2::m(g) * SIDE2 * SIDE2;
  // Window (row, column), of which a lane has one of two rows of pixels twice.
  auto put = [&](int row, int column, float top) {
    top = ptx::max_nan(top, __shfl_xor_sync(~0u, top, 16));
    if (Filter2::dy(g) == 0 && row < SIDE2) out[row * SIDE2 + column] = __float2half(top);
  };
  // each warpgroup takes groups of columns, the last one the edge, too
  const int mine = WARPGROUPS == 1 ? 0 : __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (mine == WARPGROUPS - 1) {
    float edge[pairs::edge_groups][4];
    pairs::multiply(edge, filter, pairs::Operand::edge(slot, at, 0, 0));
#pragma unroll
    for (int i = 0; i < pairs::edge_groups; i++) {
      float top = ptx::max_nan(0.0f, ptx::max_nan(edge[i][0], edge[i][2]));
      if (4 * (4 * i + t) + 2 < OUT2) top = ptx::max_nan(top, ptx::max_nan(edge[i][1], edge[i][3]));
      put(4 * i + t, SIDE2 - 1, top);
    }
  }
#pragma unroll 1
  for (int column = mine; column < at.full; column += WARPGROUPS) {
    float top = 0.0f;  // the minimum after ReLU
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
      float acc[GROUPS][4];
      pairs::multiply(acc, filter, pairs::Operand::main(slot, at, tile * GROUPS, column));
#pragma unroll
      for (int i = 0; i < GROUPS; i++) {
        const int p = 2 * (tile * GROUPS + i);  // first of two rows
        if (p < OUT2)
          top = ptx::max_nan(top, ptx::max_nan(ptx::max_nan(acc[i][0], acc[i][1]), ptx::max_nan(acc[i][2], acc[i][3])));
        if (p % 4 == 0) continue;
        put(p / 4, 4 * column + t, top);
        top = 0.0f;
      }
    }
  }
}
#else
__device__ __forceinline__ void layer2(const Filter2& filter, const void* pool1, __half* features, int job) {
  const quads::Jobs jobs(STRIPS2, OUT2);
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const quads::Place from(jobs, job, g), to(jobs, job, 2 * t);
  const int row = min(from.strip, STRIPS2 - 1) * STRIP2, first = to.strip * STRIP2;
  const bool two_lanes = jobs.width > 2 || job < jobs.full;  // a window has its columns in two lanes
  const bool stores = to.strip < STRIPS2 && to.column % 4 == 0;
  __half* const out = features + g * SIDE2 * SIDE2 + first / 4 * SIDE2 + to.column / 4;
  float top[2] = {};  // of channels g and g + 8; 0 is the minimum after ReLU
  auto pool = [&](int p, const float (&sum)[4]) {
#pragma unroll
    for (int i = 0; i < 2; i++)
      if (first + p < OUT2) top[i] = ptx::max_nan(top[i], ptx::max_nan(sum[2 * i], sum[2 * i + 1]));
    if (p % 4 < 3) return;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      if (two_lanes) top[i] = ptx::max_nan(top[i], __shfl_xor_sync(~0u, top[i], 1));
      if (stores) out[i * 8 * SIDE2 * SIDE2 + p / 4 * SIDE2] = __float2half(top[i]);
      top[i] = 0.0f;
    }
  };
  quads::multiply<STRIP2>(filter, static_cast<const uint2*>(pool1) + row * SIDE1 + from.column + t, SIDE1, pool);
}
#endif

extern "C" __global__ void reset(unsigned* next) { *next = 0; }

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    features(const Pixel* __restrict__ images, const float* __restrict__ weight1, const float* __restrict__ weight2,
             __half* __restrict__ features, unsigned* next, int N) {
  extern __shared__ __align__(128) char memory[];
  __shared__ int ids[2];  // of this image and of the next one
  __shared__ ptx::mbarrier landed;
  constexpr int SIZE = SIDE_OF_INPUT * SIDE_OF_INPUT, WARPS = THREADS / 32;
  const uint2* const quad = reinterpret_cast<const uint2*>(memory + AT_QUADS);
  char* const pool1 = memory + AT_POOL1;
  unsigned (*const fragments)[32] = reinterpret_cast<unsigned (*)[32]>(memory + AT_FILTER1);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  int ahead = 0;  // thread 0: the image after the next one
  if (threadIdx.x == 0) {
    ids[0] = FEW ? blockIdx.x : atomicAdd(next, 1);
    ahead = FEW ? N : atomicAdd(next, 1);
#ifdef PTX_BULK
    ptx::mbarrier_init(&landed, 1);
    ptx::fence_proxy_async();
    if (ids[0] < N) start_load(memory, images + (long long)ids[0] * SIZE, &landed);
#endif
  }
  Filter1 filter1;
  filter1.load(weight1, 0);
  unsigned* const a = &filter1.a[0][0][0];
  constexpr int A = sizeof(Filter1::a) / 4;
  if (warp == 0)
    for (int i = 0; i < A; i++) fragments[i][lane] = a[i];
  for (int i = 4 * threadIdx.x; i < BYTES_OF_POOL1; i += 4 * THREADS) *reinterpret_cast<int*>(pool1 + i) = 0;
  ptx::fence_proxy_async();
  __syncthreads();  // the first image is known, fragments and mbarrier are initialised
  if (ids[0] >= N) return;
#ifndef PTX_BULK
  start_load(memory, images + (long long)ids[0] * SIZE, &landed);
#endif
  Filter2 filter2;
  filter2.load(weight2, 0);

  for (int k = 0; ids[k & 1] < N; k++) {
    const int n = ids[k & 1];
#if !defined(BYTES)
#ifdef PTX_BULK
    ptx::mbarrier_wait(&landed, k & 1);
#else
    ptx::cp_async_wait<0>();
    __syncthreads();  // the copies of all threads have arrived
#endif
#endif
    to_quads(memory, images + (long long)n * SIZE);
    if (threadIdx.x == 0) {
      ids[(k + 1) & 1] = ahead;
      if (!FEW) ahead = atomicAdd(next, 1);
    }
    ptx::fence_proxy_async();
    __syncthreads();  // quads are packed, the image has been read, and so has the previous image's pool1
    const int following = ids[(k + 1) & 1];
    if (following < N) start_load(memory, images + (long long)following * SIZE, &landed);
    for (int i = 0; i < A; i++) a[i] = fragments[i][lane];
    for (int job = warp; job < 2 * SIDE1 / quads::tile_n; job += WARPS)
      layer1(filter1, quad, reinterpret_cast<__half*>(pool1), job);
    ptx::fence_proxy_async();
    __syncthreads();  // pool1 is complete, the quads have been read
#ifdef PTX_WGMMA
    layer2(filter2, pool1, features + (long long)n * FEATURES);
#else
    for (int job = warp; job < quads::Jobs(STRIPS2, OUT2).count; job += WARPS)
      layer2(filter2, pool1, features + (long long)n * FEATURES, job);
#endif
  }
}

#include "linear.cuh"
