#include <mini_dnn/implicit.cuh>
#include <mini_dnn/residual.cuh>

#if IMAGES == 8
typedef unsigned char Pixel;
#elif IMAGES == 16
typedef half Pixel;
#else
typedef float Pixel;
#endif

using Stem = stem::Tile<STEM_ROWS, STEM_COLUMNS, STEM_WARPGROUPS>;

extern "C" __global__ void __launch_bounds__(Stem::THREADS)
    stem_and_pool(const Pixel* images, const float* mean, const float* deviation, const half* w, const float* bias,
                  half* y, int channels, int side, int conv_side, int side_out, int K) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ ptx::mbarrier ready;
  const int across = (side_out + STEM_COLUMNS - 1) / STEM_COLUMNS;
  const int top = blockIdx.x / across * STEM_ROWS, left = blockIdx.x % across * STEM_COLUMNS;
  stem::make<Stem, Pixel>({images, mean, deviation}, reinterpret_cast<const char*>(w), bias,
                          {channels, side, conv_side, side_out, K}, reinterpret_cast<uint4*>(y), memory, &ready,
                          blockIdx.y, top, left, blockIdx.z * stem::COLUMNS);
}

#ifdef HAS_CONVOLVE_192X128_4_1
IMPLICIT_KERNEL(convolve_192x128_4_1, 192, 128, 4, 1, 1)
#endif
#ifdef HAS_CONVOLVE_128X128_5_1
IMPLICIT_KERNEL(convolve_128x128_5_1, 128, 128, 5, 1, 1)
#endif
#ifdef HAS_CONVOLVE_128X64_3_1
IMPLICIT_KERNEL(convolve_128x64_3_1, 128, 64, 3, 1, 2)
#endif
#ifdef HAS_CONVOLVE_64X64_5_1
IMPLICIT_KERNEL(convolve_64x64_5_1, 64, 64, 5, 1, 2)
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

extern "C" __global__ void head(const half* x, const float* w, const float* bias, float* scores, int N, int pixels,
                                int C, int classes, int images, int count) {
  extern __shared__ float means[];
  ptx::grid_launch_dependents();
  ptx::grid_wait();
  residual::head(x, w, bias, scores, means, N, pixels, C, classes, blockIdx.y * images, images, blockIdx.x * count,
                 count);
}

// ---- Done once

extern "C" __global__ void fold(const float* w, const float* gain, const float* shift, const float* mean,
                                const float* variance, half* to, float* bias, int K, int C, int R, int pitch,
                                int offset, int adds) {
  residual::fold(w, {gain, shift, mean, variance}, to, bias, K, C, R, pitch, offset, adds != 0,
                 (long long)blockIdx.x * blockDim.x + threadIdx.x);
}

extern "C" __global__ void fold_stem(const float* w, const float* gain, const float* shift, const float* mean,
                                     const float* variance, half* to, float* bias, int K, int C) {
  residual::fold_stem(w, {gain, shift, mean, variance}, to, bias, K, C, blockIdx.x * blockDim.x + threadIdx.x);
}
