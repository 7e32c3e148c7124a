// conv2d_padded/v1_shared: the convolution as a product of matrices, in tiles in shared memory.
//
// Idea      The convolution is a product of two matrices. The first has a row for each pixel of y, its window of x, and
//           the second has a column for each filter. The rows are never stored (implicit GEMM): a block finds the
//           elements of a tile in x when it fills shared memory. Each element of x is used for 64 channels, and each of
//           w for 64 pixels.
// Layout    x, w, residual and y as in the problem, channels first or last; sums and bias in fp32. x_tile [t][pixel]
//           and w_tile [t][channel], float; t is the position in a filter, in the order of w. PITCH is a multiple of 32
//           plus four, so that columns that are four apart are in different banks.
// Mapping   block -> TILE pixels, counted through all images, and TILE channels. Thread -> 4 x 4 of them.
// Roofline  layer1 of ResNet-18 with 64 images: 14.8 GFLOP, 0.22 ms at 67 TFLOP/s of fp32; 51 MB, 0.012 ms at 4.3 TB/s.
//           Each 16 FMAs need two loads of 16 bytes from shared memory, so at best half of that rate is reached.
// Gain      over conv2d_padded/v0_naive: a factor of 5 with channels first. Instead of two loads from global memory per
//           product, there is one for 32 products. With channels last it is 30, because each load of w in v0 touches 32
//           lines.
// Limits    fewer than 2^31 pixels of y.
// Hazards   __syncthreads: after the positions of the pixels are computed, after tiles are filled, before they are
//           filled again. Elements outside the image, beyond the filter or beyond y are 0 in the tile.
// Source    S. Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", arXiv:1410.0759.
#include <cuda_fp16.h>

#if HALF
typedef half Value;
#else
typedef float Value;
#endif

constexpr int SIDE = 4, PITCH = TILE + 4;  // SIDE: pixels, and channels, of a thread
static_assert(TILE == 16 * SIDE && THREADS == 256, "16 x 16 threads with 4 x 4 elements each");
static_assert(THREADS % TILE_K == 0 && THREADS % TILE == 0, "a thread fills one row or one column");

// A pixel of y: the position in x at which its window begins, which may be outside the image.
struct Window {
  int n, h, w;
};

// One of the products of a sum: the pixel of the window and the channel.
struct Tap {
  int c, r, s;
  __device__ __forceinline__ Tap(int t, int C) {
    const int pixel = CHANNELS_LAST ? t / C : t % (R * R);
    c = CHANNELS_LAST ? t % C : t / (R * R);
    r = pixel / R, s = pixel % R;
  }
};

__device__ __forceinline__ float value_at(const Value* x, const Window& window, const Tap& tap, int C, int H, int W) {
  const int h = window.h + tap.r, w = window.w + tap.s;
  if (window.n < 0 || h < 0 || h >= H || w < 0 || w >= W) return 0.0f;
  const long long line = CHANNELS_LAST ? (long long)window.n * H + h : ((long long)window.n * C + tap.c) * H + h;
  return float(x[CHANNELS_LAST ? (line * W + w) * C + tap.c : line * W + w]);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    convolve(const Value* x, const Value* w, const float* bias, const Value* residual, Value* y, int pixels, int C,
             int H, int W, int K, int stride, int padding, int P, int Q) {
  __shared__ __align__(16) float x_tile[TILE_K][PITCH], w_tile[TILE_K][PITCH];
  __shared__ Window windows[TILE];
  const int first = blockIdx.x * TILE, first_k = blockIdx.y * TILE, taps = C * R * R;
  for (int i = threadIdx.x; i < TILE; i += THREADS) {
    const int pixel = first + i, q = pixel % Q, p = pixel / Q % P;
    windows[i] = {pixel < pixels ? pixel / (P * Q) : -1, p * stride - padding, q * stride - padding};
  }
  __syncthreads();  // the positions of all windows are stored

  float acc[SIDE][SIDE] = {};
  const int ty = threadIdx.x / 16 * SIDE, tx = threadIdx.x % 16 * SIDE;
  for (int t0 = 0; t0 < taps; t0 += TILE_K) {
    if (CHANNELS_LAST) {  // neighbours in memory are channels of a pixel
      const int l = threadIdx.x % TILE_K;
      const Tap tap(t0 + l, C);
      for (int i = threadIdx.x / TILE_K; i < TILE; i += THREADS / TILE_K)
        x_tile[l][i] = t0 + l < taps ? value_at(x, windows[i], tap, C, H, W) : 0.0f;
    } else {  // or pixels of a channel
      const int i = threadIdx.x % TILE;
      for (int l = threadIdx.x / TILE; l < TILE_K; l += THREADS / TILE)
        x_tile[l][i] = t0 + l < taps ? value_at(x, windows[i], Tap(t0 + l, C), C, H, W) : 0.0f;
    }
    for (int e = threadIdx.x; e < TILE * TILE_K; e += THREADS) {
      const int l = e % TILE_K, k = e / TILE_K;
      const bool there = t0 + l < taps && first_k + k < K;
      w_tile[l][k] = there ? float(w[(long long)(first_k + k) * taps + t0 + l]) : 0.0f;
    }
    __syncthreads();  // the tiles are complete
#pragma unroll
    for (int l = 0; l < TILE_K; l++) {
      const float4 left = *reinterpret_cast<const float4*>(&x_tile[l][ty]);
      const float4 right = *reinterpret_cast<const float4*>(&w_tile[l][tx]);
      const float rows[SIDE] = {left.x, left.y, left.z, left.w}, columns[SIDE] = {right.x, right.y, right.z, right.w};
#pragma unroll
      for (int i = 0; i < SIDE; i++)
#pragma unroll
        for (int j = 0; j < SIDE; j++) acc[i][j] += rows[i] * columns[j];
    }
    __syncthreads();  // the tiles have been read
  }

#pragma unroll
  for (int i = 0; i < SIDE; i++)
#pragma unroll
    for (int j = 0; j < SIDE; j++) {
      const int pixel = first + ty + i, k = first_k + tx + j;
      if (pixel >= pixels || k >= K) continue;
      const long long image = pixel / (P * Q), at = pixel % (P * Q);
      const long long to = CHANNELS_LAST ? (long long)pixel * K + k : (image * K + k) * P * Q + at;
      float sum = acc[i][j] + bias[k];
      if (RESIDUAL) sum += float(residual[to]);
      y[to] = Value(RELU ? fmaxf(sum, 0.0f) : sum);
    }
}
