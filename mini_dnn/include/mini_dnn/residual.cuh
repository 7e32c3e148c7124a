// The layers of a residual network other than convolutions: #include <mini_dnn/residual.cuh>
#pragma once
#include <cuda_fp16.h>
#include <mini_dnn/stem.cuh>

namespace residual {

constexpr int THREADS = 256, WARPS = THREADS / 32;  // of the kernels in this file
constexpr int MEAN_COLUMNS = 64;                    // channels of a block that computes means of many images
constexpr int KEPT = 4;                             // parts of 128 weights that a warp keeps in registers

struct alignas(16) Eight {
  half part[8];
};

__device__ __forceinline__ float sum_of_warp(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// Means over the pixels of channels of an image x (pixels, C), from `channel` on. A thread has eight channels of every
// ROWS-th pixel. `sums` is in shared memory.
template <int CHANNELS, int AT_ONCE>
__device__ __forceinline__ void means(const half* x, float* to, float (&sums)[THREADS * 8], int pixels, int C,
                                      int channel) {
  constexpr int ROWS = THREADS * 8 / CHANNELS;
  const int part = threadIdx.x % (CHANNELS / 8), row = threadIdx.x / (CHANNELS / 8);
  const int end = channel + 8 * part < C ? pixels : 0;
  float sum[8] = {};
#pragma unroll AT_ONCE
  for (int i = row; i < end; i += ROWS) {
    const Eight eight = *reinterpret_cast<const Eight*>(x + (long long)i * C + channel + 8 * part);
#pragma unroll
    for (int e = 0; e < 8; e++) sum[e] += float(eight.part[e]);
  }
#pragma unroll
  for (int e = 0; e < 8; e++) sums[row * CHANNELS + 8 * part + e] = sum[e];
  __syncthreads();  // all sums are stored
  for (int c = threadIdx.x; c < min(CHANNELS, C - channel); c += THREADS) {
    float whole = 0.0f;
#pragma unroll
    for (int i = 0; i < ROWS; i++) whole += sums[i * CHANNELS + c];
    to[channel + c] = whole / pixels;
  }
  __syncthreads();  // all sums have been read
}

// A warp's class: its weights. The first of them are loaded before the previous kernel has ended.
struct Class {
  const float* w;
  int C;
  float4 kept[KEPT];
  __device__ __forceinline__ Class(const float* w, int C) : w(w), C(C) {
#pragma unroll
    for (int i = 0; i < KEPT; i++)
      if (at(i) < C) kept[i] = *reinterpret_cast<const float4*>(w + at(i));
  }
  __device__ __forceinline__ int at(int i) const { return 128 * i + threadIdx.x % 32 * 4; }
  // The product with an image's means, in all lanes.
  __device__ __forceinline__ float score(const float* means) const {
    float sum = 0.0f;
    auto add = [&](const float4& w, int c) {
      const float4 mean = *reinterpret_cast<const float4*>(means + c);
      sum += w.x * mean.x + w.y * mean.y + w.z * mean.z + w.w * mean.w;
    };
#pragma unroll
    for (int i = 0; i < KEPT; i++)
      if (at(i) < C) add(kept[i], at(i));
    for (int i = KEPT; at(i) < C; i++) add(*reinterpret_cast<const float4*>(w + at(i)), at(i));
    return sum_of_warp(sum);
  }
};

// ---- Computed once: batch norm is folded into weights and bias. Sums are in double, and are rounded at the end.
struct Norm {
  const float *gain, *shift, *mean, *variance;
  __device__ __forceinline__ double scale(int k) const { return gain[k] / sqrt(double(variance[k]) + 1e-5); }
  __device__ __forceinline__ double bias(int k) const { return shift[k] - mean[k] * scale(k); }
};

// Converts weights (K,C,R,R) to halves (lines,R,R,wide), in lines of `pitch` elements, from column `offset` on. If
// `adds` is set, the bias is added to the one that is there. Places without a weight become zero.
__device__ __forceinline__ void fold(const float* w, const Norm& norm, half* to, float* bias, int K, int C, int R,
                                     int lines, int wide, int pitch, int offset, bool adds, long long i) {
  const int line = wide * R * R;
  if (i >= (long long)lines * line) return;
  const int k = i / line, at = i % line, c = at % wide, tap = at / wide;
  const bool there = k < K && c < C;
  to[(long long)k * pitch + offset + at] =
      __float2half(there ? w[((long long)k * C + c) * R * R + tap] * norm.scale(k) : 0.0);
  if (at == 0) bias[k] = (adds ? bias[k] : 0.0f) + (k < K ? norm.bias(k) : 0.0);
}

// Copies lines of C numbers to lines of `wide` numbers with zeros at the end.
__device__ __forceinline__ void widen(const float* w, float* to, int lines, int C, int wide, long long i) {
  if (i < (long long)lines * wide) to[i] = i % wide < C ? w[i / wide * C + i % wide] : 0.0f;
}

#ifdef PTX_WGMMA
// The stem's weights, in groups of 64 output channels: filter rows, then k by eight, then columns by eight.
__device__ __forceinline__ void fold_stem(const float* w, const Norm& norm, half* to, float* bias, int K, int C,
                                          int lines, int i) {
  if (i >= lines * stem::FILTER_ROWS * 32) return;
  const int e = i % 8, column = i / 8 % stem::COLUMNS, eight = i / 8 / stem::COLUMNS % 4;
  const int r = i / 32 / stem::COLUMNS % stem::FILTER_ROWS,
            k = i / 32 / stem::COLUMNS / stem::FILTER_ROWS * 64 + column;
  const int s = 2 * eight + e / 4 - 1, c = e % 4;
  const bool there = s >= 0 && c < C && k < K;
  to[i] = __float2half(there ? w[((k * C + c) * 7 + r) * 7 + s] * norm.scale(k) : 0.0);
  if (r == 0 && eight == 0 && e == 0) bias[k] = k < K ? norm.bias(k) : 0.0;
}

// Stores windows of 3 x 3 of an image as 64 channels of a pixel: c, then rows, then columns. The last channels are
// zero. A thread has eight of them.
template <class Pixel>
__device__ __forceinline__ void take_windows(const stem::Source<Pixel>& from, half* to, long long count, int channels,
                                             int side, long long i) {
  if (i >= count) return;
  const long long pixel = i / 8, plane = (long long)side * side;
  const int part = i % 8, q = pixel % side, p = pixel / side % side;
  const Pixel* const image = from.images + pixel / plane * channels * plane;
  Eight found;
#pragma unroll
  for (int e = 0; e < 8; e++) {
    const int at = part * 8 + e, c = at / 9, h = p + at % 9 / 3 - 1, w = q + at % 3 - 1;
    const bool there = c < channels && h >= 0 && h < side && w >= 0 && w < side;
    found.part[e] = __float2half(there ? from.get(image[c * plane + (long long)h * side + w], c) : 0.0f);
  }
  *reinterpret_cast<Eight*>(to + i * 8) = found;
}
#endif

}  // namespace residual
