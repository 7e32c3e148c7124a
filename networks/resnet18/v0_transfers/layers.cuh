// The small layers of a residual network, fp32, channels first; convolutions are those of the ladder conv2d_padded.
//
// A thread has an element of the output, and count is the number of elements. In average_pool and linear, a warp has an
// element.
#pragma once
#include <cuda_fp16.h>

#if IMAGES == 8
typedef unsigned char Pixel;
#elif IMAGES == 16
typedef half Pixel;
#else
typedef float Pixel;
#endif

__device__ __forceinline__ long long thread_index() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }

// The sum of a warp's 32 values.
__device__ __forceinline__ float sum_of_warp(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

extern "C" __global__ void clear(float* x, long long count) {
  const long long i = thread_index();
  if (i < count) x[i] = 0.0f;
}

// images (N,C,pixels) -> x in fp32; bytes are normalised by the mean and deviation of their channel.
extern "C" __global__ void convert(const Pixel* images, const float* mean, const float* deviation, float* x,
                                   long long count, int C, int pixels) {
  const long long i = thread_index();
  if (i >= count) return;
  const int c = i / pixels % C;
  const float value = float(images[i]);
  x[i] = IMAGES == 8 ? (value / 255.0f - mean[c]) / deviation[c] : value;
}

// Normalises y (N,K,pixels) in place, by the running mean and variance of the training.
extern "C" __global__ void batch_norm(float* y, const float* weight, const float* bias, const float* mean,
                                      const float* variance, long long count, int K, int pixels) {
  const long long i = thread_index();
  if (i >= count) return;
  const int k = i / pixels % K;
  y[i] = (y[i] - mean[k]) / sqrtf(variance[k] + 1e-5f) * weight[k] + bias[k];
}

extern "C" __global__ void relu(float* y, long long count) {
  const long long i = thread_index();
  if (i < count) y[i] = fmaxf(y[i], 0.0f);
}

extern "C" __global__ void add(float* y, const float* shortcut, long long count) {
  const long long i = thread_index();
  if (i < count) y[i] += shortcut[i];
}

// Maxima of 3 x 3 windows of x (..., side, side), stride 2, padding 1 -> y (..., P, P).
extern "C" __global__ void max_pool(const float* x, float* y, long long count, int side, int P) {
  const long long i = thread_index();
  if (i >= count) return;
  const int q = i % P, p = i / P % P;
  const float* const plane = x + i / (P * P) * side * side;
  float largest = -INFINITY;
  for (int h = max(2 * p - 1, 0); h < min(2 * p + 2, side); h++)
    for (int w = max(2 * q - 1, 0); w < min(2 * q + 2, side); w++) largest = fmaxf(largest, plane[h * side + w]);
  y[i] = largest;
}

// Means over the pixels of x (planes, pixels).
extern "C" __global__ void average_pool(const float* x, float* y, int planes, int pixels) {
  const long long plane = thread_index() / 32;
  if (plane >= planes) return;
  float sum = 0.0f;
  for (int i = threadIdx.x % 32; i < pixels; i += 32) sum += x[plane * pixels + i];
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) y[plane] = sum / pixels;
}

// y (N,outputs) = x (N,inputs) weight^T + bias, weight (outputs,inputs)
extern "C" __global__ void linear(const float* x, const float* weight, const float* bias, float* y, int count,
                                  int inputs, int outputs) {
  const long long i = thread_index() / 32;
  if (i >= count) return;
  const int output = i % outputs;
  const float *const row = x + i / outputs * inputs, *const of = weight + (long long)output * inputs;
  float sum = 0.0f;
  for (int k = threadIdx.x % 32; k < inputs; k += 32) sum += row[k] * of[k];
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) y[i] = sum + bias[output];
}
