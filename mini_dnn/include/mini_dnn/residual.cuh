// What a residual network needs beside its convolutions: #include <mini_dnn/residual.cuh>
#pragma once
#include <cuda_fp16.h>
#include <mini_dnn/stem.cuh>

namespace residual {

constexpr int HEAD_THREADS = 256, HEAD_IMAGES = 4;  // of a block, at most

struct alignas(16) Eight {
  half part[8];
};

__device__ __forceinline__ float sum_of_warp(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// Means over pixels of x (N, pixels, C), then scores (N, classes) = means w + bias: some images and classes of a block.
// `means`: C floats of each image, in shared memory.
__device__ __forceinline__ void head(const half* x, const float* w, const float* bias, float* scores, float* means,
                                     int N, int pixels, int C, int classes, int first, int images, int first_class,
                                     int count) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, here = min(images, N - first);
  for (int i = threadIdx.x; i < here * (C / 2); i += blockDim.x) {
    const int image = i / (C / 2), pair = i % (C / 2);
    const half* const from = x + (long long)(first + image) * pixels * C + 2 * pair;
    float low = 0.0f, high = 0.0f;
#pragma unroll 7
    for (int j = 0; j < pixels; j++) {
      const float2 two = ptx::unpack_halves(*reinterpret_cast<const unsigned*>(from + (long long)j * C));
      low += two.x, high += two.y;
    }
    means[image * C + 2 * pair] = low / pixels, means[image * C + 2 * pair + 1] = high / pixels;
  }
  __syncthreads();  // all means are there
  for (int k = first_class + warp; k < min(first_class + count, classes); k += blockDim.x / 32) {
    float sum[HEAD_IMAGES] = {};
#pragma unroll 4
    for (int c = 4 * lane; c < C; c += 128) {
      const float4 four = *reinterpret_cast<const float4*>(w + (long long)k * C + c);
#pragma unroll
      for (int i = 0; i < HEAD_IMAGES; i++) {
        if (i >= here) break;
        const float* const mean = means + i * C + c;
        sum[i] += four.x * mean[0] + four.y * mean[1] + four.z * mean[2] + four.w * mean[3];
      }
    }
#pragma unroll
    for (int i = 0; i < HEAD_IMAGES; i++) {
      if (i >= here) break;
      const float whole = sum_of_warp(sum[i]);
      if (lane == 0) scores[(long long)(first + i) * classes + k] = whole + bias[k];
    }
  }
}

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
  const int s = 2 * eight + e / 4, c = e % 4;
  const bool there = s < stem::FILTER_ROWS && c < C;
  to[i] = __float2half(there ? w[((k * C + c) * 7 + r) * 7 + s] * norm.scale(k) : 0.0);
  if (r == 0 && eight == 0 && e == 0) bias[k] = norm.bias(k);
}
#endif

}  // namespace residual
