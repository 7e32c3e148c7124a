// networks/resnet18/v5_fused: one launch per convolution, including the operations after it. 20 convolutions take 18
// launches, or 19 with more than two images.
//
// Idea      One launch computes a convolution and everything around it.
//           - Norms: in inference, a batch norm is a factor and a summand for each channel. Both are folded into
//             weights and bias, once. Bias, residual and ReLU are applied while sums are in registers
//             (mini_dnn/implicit.cuh).
//           - Shortcuts: if a block changes the shape, its shortcut is a convolution of one pixel. Its products are a
//             few more steps of the sums of the block's second convolution, so the shortcut is neither written nor
//             rounded.
//           - Stem: convolution, ReLU and maximum are computed in one kernel, directly from the image, without storing
//             windows (mini_dnn/stem.cuh). A stem of 3 x 3 is a convolution of one pixel: an earlier kernel writes the
//             windows of the image as 64 channels.
//           - Head: means and scores are computed in one launch if there are at most two images.
//           - Widths that are not divisible by 64 are padded with zeros, in weights and in maps.
// Layout    images (N,C,H,W) bytes, halves or fp32; between layers (N,H,W,C) halves; weights (K,R,R,C) halves, followed
//           in each line by those of the shortcut; bias, scores (N,classes) fp32. Three arrays are used in turn, and a
//           block without a shortcut convolution overwrites its residual.
// Mapping   stem: a block -> STEM_ROWS x STEM_COLUMNS pixels after the maximum; convolutions: see implicit.cuh; head: a
//           warp -> a class of some images; fold: a thread -> a weight.
// Roofline  ResNet-18, 64 images: 233 GFLOP, 0.39 ms at 600 TFLOP/s. The stem has 15 GFLOP of these. It takes 0.03 ms,
//           because it computes 1.5 times as many products as its windows have. Images are 19 MB and all layers 154 MB,
//           mostly in L2: 0.04 ms. One image needs 23 MB of weights from L2, 0.005 ms, and 18 launches one after the
//           other, which take at least 3 us each.
// Gain      over networks/resnet18/v4_tensor_cores: no kernels for 20 norms and 8 sums, 0.2 ms with 64 images, and a
//           factor of 2 and more in convolutions, because the tensor cores do not wait for loads.
// Limits    sm_90a; images have at most 4 channels, or 7 with the small stem. Channels are processed 64 at a time: a
//           network with 16 channels stores four times as much in maps, and computes up to 16 times as many products.
// Hazards   those of implicit.cuh. The second layer of a block may read and write the same array, because the warp that
//           writes an element reads it first. In the stem, windows beyond the end of a row read pixels of the next row,
//           or beyond the image: those must be finite, because zero times NaN is NaN.
// Source    K. He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385.
#include <mini_dnn/implicit_rows.cuh>
#include <mini_dnn/residual.cuh>
#include <mini_dnn/stem_strips.cuh>

#if IMAGES == 8
typedef unsigned char Pixel;
#elif IMAGES == 16
typedef half Pixel;
#else
typedef float Pixel;
#endif

#if defined STEM_STEPS
extern "C" __global__ void __launch_bounds__(strips::THREADS, strips::BLOCKS)
    stem_in_strips(const Pixel* images, const float* mean, const float* deviation, const half* w, const float* bias,
                   half* y, int channels, int side, int conv_side, int side_out, int K) {
  const int across = (side_out + strips::COLUMNS - 1) / strips::COLUMNS, first = blockIdx.x / across * STEM_STEPS;
  const int last = min(first + STEM_STEPS, conv_side / strips::ROWS);
  strips::make<Pixel>({images, mean, deviation}, w, bias, {channels, side, conv_side, side_out, K},
                      reinterpret_cast<uint4*>(y), blockIdx.y, blockIdx.x % across * strips::COLUMNS, first, last,
                      blockIdx.z * strips::CHANNELS);
}
#elif defined STEM_ROWS
using Stem = stem::Tile<STEM_ROWS, STEM_COLUMNS, STEM_WARPGROUPS>;

extern "C" __global__ void __launch_bounds__(Stem::THREADS, STEM_BLOCKS)
    stem_and_pool(const Pixel* images, const float* mean, const float* deviation, const half* w, const float* bias,
                  half* y, int channels, int side, int conv_side, int side_out, int K) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ ptx::mbarrier ready;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&ready, 1);
    ptx::fence_proxy_async();
  }
  const int across = (side_out + STEM_COLUMNS - 1) / STEM_COLUMNS;
  const int top = blockIdx.x / across * STEM_ROWS, left = blockIdx.x % across * STEM_COLUMNS;
  stem::make<Stem, Pixel>({images, mean, deviation}, reinterpret_cast<const char*>(w), bias,
                          {channels, side, conv_side, side_out, K}, reinterpret_cast<uint4*>(y), memory, &ready, 0,
                          blockIdx.y, top, left, blockIdx.z * stem::COLUMNS);
}
#else
// A small stem convolves windows, which are stored one after the other.
extern "C" __global__ void take_windows(const Pixel* images, const float* mean, const float* deviation, half* to,
                                        long long count, int channels, int side) {
  ptx::grid_launch_dependents();
  ptx::grid_wait();
  residual::take_windows<Pixel>({images, mean, deviation}, to, count, channels, side,
                                (long long)blockIdx.x * blockDim.x + threadIdx.x);
}
#endif

// Only those that a plan launches are compiled.
#ifdef HAS_CONVOLVE_192X128_4_1
IMPLICIT_KERNEL(convolve_192x128_4_1, 192, 128, 4, 1, 1)
#endif
#ifdef HAS_CONVOLVE_128X128_6_1
IMPLICIT_KERNEL(convolve_128x128_6_1, 128, 128, 6, 1, 1)
#endif
#ifdef HAS_CONVOLVE_128X128_6_2
IMPLICIT_KERNEL(convolve_128x128_6_2, 128, 128, 6, 2, 1)
#endif
#ifdef HAS_CONVOLVE_128X128_5_4
IMPLICIT_KERNEL(convolve_128x128_5_4, 128, 128, 5, 4, 1)
#endif
#ifdef HAS_CONVOLVE_128X64_8_1
IMPLICIT_KERNEL(convolve_128x64_8_1, 128, 64, 8, 1, 1)
#endif
#ifdef HAS_CONVOLVE_128X64_4_1
IMPLICIT_KERNEL(convolve_128x64_4_1, 128, 64, 4, 1, 2)
#endif
#ifdef HAS_CONVOLVE_64X128_6_2
IMPLICIT_KERNEL(convolve_64x128_6_2, 64, 128, 6, 2, 1)
#endif
#ifdef HAS_CONVOLVE_64X128_6_4
IMPLICIT_KERNEL(convolve_64x128_6_4, 64, 128, 6, 4, 1)
#endif
#ifdef HAS_CONVOLVE_64X64_6_1
IMPLICIT_KERNEL(convolve_64x64_6_1, 64, 64, 6, 1, 2)
#endif
#ifdef HAS_CONVOLVE_64X64_5_2
IMPLICIT_KERNEL(convolve_64x64_5_2, 64, 64, 5, 2, 2)
#endif
#ifdef HAS_CONVOLVE_64X64_5_4
IMPLICIT_KERNEL(convolve_64x64_5_4, 64, 64, 5, 4, 2)
#endif
#ifdef HAS_CONVOLVE_64X64_5_8
IMPLICIT_KERNEL(convolve_64x64_5_8, 64, 64, 5, 8, 2)
#endif

#ifdef HAS_CONVOLVE_ROWS
IMPLICIT_ROWS_KERNEL(convolve_rows)
#endif

// Means and scores of an image. A block computes 8 classes, and each block computes the means again.
extern "C" __global__ void head(const half* x, const float* w, const float* bias, float* scores, int pixels, int C,
                                int classes) {
  extern __shared__ __align__(16) float features[];
  __shared__ float sums[residual::THREADS * 8];
  const int k = blockIdx.x * residual::WARPS + threadIdx.x / 32, n = blockIdx.y;
  const residual::Class one(w + (long long)min(k, classes - 1) * C, C);
  ptx::grid_launch_dependents();
  ptx::grid_wait();
  for (int c = 0; c < C; c += 512) residual::means<512, 7>(x + (long long)n * pixels * C, features, sums, pixels, C, c);
  const float score = one.score(features);
  if (threadIdx.x % 32 == 0 && k < classes) scores[(long long)n * classes + k] = score + bias[k];
}

// The same for many images, in two kernels.
extern "C" __global__ void take_means(const half* x, float* features, int pixels, int C) {
  ptx::grid_launch_dependents();
  ptx::grid_wait();
  __shared__ float sums[residual::THREADS * 8];
  const long long n = blockIdx.y;
  residual::means<residual::MEAN_COLUMNS, 2>(x + n * pixels * C, features + n * C, sums, pixels, C,
                                             blockIdx.x * residual::MEAN_COLUMNS);
}

extern "C" __global__ void score(const float* features, const float* w, const float* bias, float* scores, int N, int C,
                                 int classes, int images) {
  const int k = blockIdx.x * residual::WARPS + threadIdx.x / 32, first = blockIdx.y * images;
  const residual::Class one(w + (long long)min(k, classes - 1) * C, C);
  ptx::grid_launch_dependents();
  ptx::grid_wait();
#pragma unroll 4
  for (int n = first; n < min(first + images, N); n++) {
    const float score = one.score(features + (long long)n * C);
    if (threadIdx.x % 32 == 0 && k < classes) scores[(long long)n * classes + k] = score + bias[k];
  }
}

// ---- Done once

extern "C" __global__ void fold(const float* w, const float* gain, const float* shift, const float* mean,
                                const float* variance, half* to, float* bias, int K, int C, int R, int lines, int wide,
                                int pitch, int offset, int adds) {
  residual::fold(w, {gain, shift, mean, variance}, to, bias, K, C, R, lines, wide, pitch, offset, adds != 0,
                 (long long)blockIdx.x * blockDim.x + threadIdx.x);
}

extern "C" __global__ void widen(const float* w, float* to, int lines, int C, int wide) {
  residual::widen(w, to, lines, C, wide, (long long)blockIdx.x * blockDim.x + threadIdx.x);
}

extern "C" __global__ void fold_stem(const float* w, const float* gain, const float* shift, const float* mean,
                                     const float* variance, half* to, float* bias, int K, int C, int lines) {
  residual::fold_stem(w, {gain, shift, mean, variance}, to, bias, K, C, lines, blockIdx.x * blockDim.x + threadIdx.x);
}
