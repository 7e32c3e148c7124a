// What a residual network needs beside its convolutions: #include <mini_dnn/residual.cuh>
#pragma once
#include <cuda_fp16.h>
#include <mini_dnn/stem.cuh>

namespace residual {

constexpr int THREADS = 256, WARPS = THREADS / 32;  // of the kernels here
constexpr int MEAN_COLUMNS = 64;                    // channels of a block that takes means of many images
constexpr int KEPT = 4;                             // parts of 128 weights that a warp keeps in registers

struct alignas(16) Eight {
  half part[8];
};

__device__ __forceinline__ float sum_of_warp(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// Means over pixels of so many channels of an image x (pixels, C), from `channel` on: a thread has eight channels of
// every ROWS-th pixel. `sums` is in shared memory.
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
  __syncthreads();  // all sums are there
  for (int c = threadIdx.x; c < min(CHANNELS, C - channel); c += THREADS) {
    float whole = 0.0f;
#pragma unroll
    for (int i = 0; i < ROWS; i++) whole += sums[i * CHANNELS + c];
    to[channel + c] = whole / pixels;
  }
  __syncthreads();  // and read
}

// A warp's class: its weights, of which the first come before the kernel ahead has ended.
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

// ---- Done once: batch norm becomes part of weights and bias. In double, as rounding comes last.
struct Norm {
  const float *gain, *shift, *mean, *variance;
  __device__ __forceinline__ double scale(int k) const { return gain[k] / sqrt(double(variance[k]) + 1e-5); }
  __device__ __forceinline__ double bias(int k) const { return shift[k] - mean[k] * scale(k); }
};

// Weights (K,C,R,R) to halves (K,R,R,C), in lines of `pitch`, from column `offset` on; a bias that `adds` is added.
__device__ __forceinline__ void fold(const float* w, const Norm& norm, half* to, float* bias, int K, int C, int R,
                                     int pitch, int offset, bool adds, long long i) {
  const int line = C * R * R;
  if (i >= (long long)K * line) return;
  const int k = i / line, at = i % line, c = at % C, tap = at / C;
  to[(long long)k * pitch + offset + at] = __float2half(w[((long long)k * C + c) * R * R + tap] * norm.scale(k));
  if (at == 0) bias[k] = (adds ? bias[k] : 0.0f) + norm.bias(k);
}

#ifdef PTX_WGMMA
// The stem's: 64 output channels after the other; of those filter rows, of those k by eight, then columns by eight.
__device__ __forceinline__ void fold_stem(const float* w, const Norm& norm, half* to, float* bias, int K, int C,
                                          int i) {
  if (i >= K * stem::FILTER_ROWS * 32) return;
  const int e = i % 8, column = i / 8 % stem::COLUMNS, eight = i / 8 / stem::COLUMNS % 4;
  const int r = i / 32 / stem::COLUMNS % stem::FILTER_ROWS,
            k = i / 32 / stem::COLUMNS / stem::FILTER_ROWS * 64 + column;
  const int s = 2 * eight + e / 4 - 1, c = e % 4;
  const bool there = s >= 0 && c < C;
  to[i] = __float2half(there ? w[((k * C + c) * 7 + r) * 7 + s] * norm.scale(k) : 0.0);
  if (r == 0 && eight == 0 && e == 0) bias[k] = norm.bias(k);
}
#endif

}  // namespace residual
