// networks/vit/fused: a vision transformer with five launches per block, in halves, that computes no unused results.
//
// Idea      All operations between products are part of a product: linear/v2_ahead applies bias, GELU and residual to
//           sums in registers, and stores the moments of each line, from which the next product computes its layer
//           norm. Attention reads queries, keys and values packed, as the product writes them. The class token and the
//           positions are a residual of the product that embeds the patches. In the last block, only the class tokens
//           are processed after attention, because the others are not used. This file has the rest: patches, softmax,
//           and the conversion of weights to halves, done once.
// Layout    images (N,C,H,W) bytes, halves or fp32; patches (N,T,K) halves, K = C S S rounded up to 8, with zeros in
//           place of the class token; tokens (N,T,D), qkv (N,T,3,heads,d) halves, sums in fp32; scores and
//           probabilities (N,classes) fp32. C order.
// Mapping   cut: a thread -> 8 pixels; softmax: a warp -> an image; fold: a warp -> a line of weights.
// Roofline  ViT-B/16, 32 images of 197 tokens, at 700 TFLOP/s and 4.3 TB/s: qkv has 22 GFLOP, 0.032 ms; the projection
//           7.4, 0.011 ms; up and down 30 each, 0.042 ms each. Attention takes 0.017 ms for exponentials and 39 MB.
//           These are 0.144 ms for each of 11 blocks, and 0.065 for the last one, mostly qkv. Patches take 0.018, head
//           and softmax 0.008. The total is 1.67 ms, 19,000 images/s, if all launches are hidden. Data between
//           products, 10 to 39 MB, stay in the L2 cache.
// Gain      over networks/vit/layer_by_layer: tensor cores instead of 17 ms in fp32, and 7 GB less traffic. Over the
//           same products with kernels between them, it saves 24 norms of 20 MB each, 0.11 ms at 4.3 TB/s, and the
//           unused rows of the last block, 0.09 ms.
// Limits    sm_90a. Tokens are halves: beyond 65,504 they are infinite, and sums of 24 branches are rounded 24 times.
// Hazards   softmax is launched early and waits before it reads. Otherwise none: threads share only the sums of a warp.
// Source    A. Dosovitskiy et al., "An Image is Worth 16x16 Words", arXiv:2010.11929.
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>

#if IMAGES == 8
typedef unsigned char Pixel;
#elif IMAGES == 16
typedef half Pixel;
#else
typedef float Pixel;
#endif

struct alignas(8 * sizeof(Pixel) < 16 ? 8 * sizeof(Pixel) : 16) Eight {
  Pixel part[8];
};

__device__ __forceinline__ float value(Pixel pixel) { return IMAGES == 8 ? float(pixel) * (1 / 255.0f) : float(pixel); }

__device__ __forceinline__ long long thread_index() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }

__device__ __forceinline__ float sum_of_warp(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// images (N,C,side,side) -> patches (N,T,K): eight in a row at a time.
extern "C" __global__ void cut(const Pixel* __restrict__ images, uint4* patches, long long count, int C, int side,
                               int S, int T, int K) {
  const long long i = thread_index();
  if (i >= count) return;
  const int first = i % (K / 8) * 8, across = side / S;
  const long long token = i / (K / 8), n = token / T;
  const int patch = token % T - 1;  // -1: the class token
  const Pixel* const corner = images + n * C * side * side + patch / across * S * side + patch % across * S;
  float pixels[8] = {};
  if (patch >= 0 && S % 8 == 0 && side % 8 == 0) {
    const int w = first % S, h = first / S % S, c = first / (S * S);
    const Eight eight = *reinterpret_cast<const Eight*>(corner + ((long long)c * side + h) * side + w);
#pragma unroll
    for (int e = 0; e < 8; e++) pixels[e] = value(eight.part[e]);
  } else if (patch >= 0) {
#pragma unroll
    for (int e = 0; e < 8; e++) {
      const int at = first + e, w = at % S, h = at / S % S, c = at / (S * S);
      if (c < C) pixels[e] = value(corner[((long long)c * side + h) * side + w]);
    }
  }
  patches[i] = make_uint4(ptx::pack_halves(pixels[0], pixels[1]), ptx::pack_halves(pixels[2], pixels[3]),
                          ptx::pack_halves(pixels[4], pixels[5]), ptx::pack_halves(pixels[6], pixels[7]));
}

// In place. The largest score is subtracted first, so that no exponential overflows.
extern "C" __global__ void softmax(float* y, int N, int classes) {
  const long long n = thread_index() / 32;
  const int lane = threadIdx.x % 32;
  ptx::grid_wait();
  if (n >= N) return;
  float* const scores = y + n * classes;
  float largest = -INFINITY, sum = 0.0f;
  for (int k = lane; k < classes; k += 32) largest = fmaxf(largest, scores[k]);
  for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
  for (int k = lane; k < classes; k += 32) sum += expf(scores[k] - largest);
  sum = sum_of_warp(sum);
  for (int k = lane; k < classes; k += 32) scores[k] = expf(scores[k] - largest) / sum;
}

// ---- Done once

// Converts lines of weights to halves, with zeros after them up to the pitch.
extern "C" __global__ void halve(const float* w, half* to, long long count, int k, int pitch) {
  const long long i = thread_index();
  if (i >= count) return;
  const int e = i % pitch;
  to[i] = __float2half(e < k ? w[i / pitch * k + e] : 0.0f);
}

// Folds a norm's weight and bias into the linear layer after it. The mean of each line of weights is subtracted from
// it, so the mean of the layer's input does not have to be subtracted.
extern "C" __global__ void fold(const float* w, const float* bias, const float* norm_weight, const float* norm_bias,
                                half* to, float* to_bias, int n, int k) {
  const long long line = thread_index() / 32;
  const int lane = threadIdx.x % 32;
  if (line >= n) return;
  const float* const from = w + line * k;
  float sum = 0.0f, shift = 0.0f;
  for (int e = lane; e < k; e += 32) {
    sum += from[e] * norm_weight[e];
    shift += from[e] * norm_bias[e];
  }
  const float mean = sum_of_warp(sum) / k;
  shift = sum_of_warp(shift);
  for (int e = lane; e < k; e += 32) to[line * k + e] = __float2half(from[e] * norm_weight[e] - mean);
  if (lane == 0) to_bias[line] = bias[line] + shift;
}

// The residual of the patches' product: the positions and, at the class token, also this token minus the bias.
extern "C" __global__ void place(const float* position, const float* class_token, const float* bias, half* to, int T,
                                 int D) {
  const int i = thread_index();
  if (i < T * D) to[i] = __float2half(position[i] + (i < D ? class_token[i] - bias[i] : 0.0f));
}
