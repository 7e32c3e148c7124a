// Features to classes; kernel.cu has the sizes.
#pragma once
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>

// The linear layers and softmax: 32 images per block of 8 warps; features are loaded four at a time.
extern "C" __global__ void __launch_bounds__(256)
    classify(const uint2* __restrict__ features, const float* __restrict__ weight1, const float* bias1,
             const float* weight2, const float* bias2, float* probabilities, int N) {
  constexpr int WARPS = 8, IMAGES = 32, STEPS = FEATURES / 16;
  constexpr int AT_ONCE = FEW ? 6 : 2;               // steps in flight: more if no other block hides the latency
  __shared__ float part[WARPS][IMAGES][HIDDEN + 1];  // + 1: lanes write rows that lie in different banks
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, n0 = blockIdx.x * IMAGES;
  // Slots 2t, 2t + 1, 2t + 8 and 2t + 9 of a step are four adjacent features, because the order of a sum is free.
  const uint2* row[IMAGES / 8];
  const float4* column[HIDDEN / 8];
#pragma unroll
  for (int i = 0; i < IMAGES / 8; i++) row[i] = features + (long long)min(n0 + 8 * i + g, N - 1) * (FEATURES / 4) + t;
#pragma unroll
  for (int i = 0; i < HIDDEN / 8; i++)
    column[i] = reinterpret_cast<const float4*>(weight1 + (8 * i + g) * FEATURES) + t;
  float acc[IMAGES / 16][HIDDEN / 8][4] = {};
#pragma unroll AT_ONCE
  for (int step = warp; step < STEPS; step += WARPS) {
    unsigned a[IMAGES / 16][4], b[HIDDEN / 8][2];
#pragma unroll
    for (int i = 0; i < IMAGES / 8; i++) {
      const uint2 both = row[i][step * 4];
      a[i / 2][i % 2] = both.x, a[i / 2][i % 2 + 2] = both.y;
    }
#pragma unroll
    for (int i = 0; i < HIDDEN / 8; i++) {
      const float4 four = column[i][step * 4];
      b[i][0] = ptx::pack_halves(four.x, four.y), b[i][1] = ptx::pack_halves(four.z, four.w);
    }
#pragma unroll
    for (int i = 0; i < IMAGES / 16; i++)
#pragma unroll
      for (int j = 0; j < HIDDEN / 8; j++) ptx::mma_m16n8k16(acc[i][j], a[i], b[j]);
  }
#pragma unroll
  for (int i = 0; i < IMAGES / 16; i++)
#pragma unroll
    for (int j = 0; j < HIDDEN / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) part[warp][16 * i + e / 2 * 8 + g][8 * j + 2 * t + e % 2] = acc[i][j][e];
  __syncthreads();                       // all parts are complete
  const int k = min(lane, CLASSES - 1);  // lanes beyond the classes repeat the last one
  alignas(16) float weights[HIDDEN];
#pragma unroll
  for (int j = 0; j < HIDDEN; j += 4)
    *reinterpret_cast<float4*>(&weights[j]) = reinterpret_cast<const float4*>(weight2 + k * HIDDEN)[j / 4];
  for (int i = warp; i < IMAGES && n0 + i < N; i += WARPS) {
    float hidden = bias1[lane];
#pragma unroll
    for (int w = 0; w < WARPS; w++) hidden += part[w][i][lane];
    hidden = fmaxf(hidden, 0.0f);
    float score = bias2[k];
#pragma unroll
    for (int j = 0; j < HIDDEN; j++) score += __shfl_sync(~0u, hidden, j) * weights[j];
    float largest = score;
    for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    const float exponential = lane < CLASSES ? expf(score - largest) : 0.0f;
    float sum = exponential;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane < CLASSES) probabilities[(long long)(n0 + i) * CLASSES + lane] = exponential / sum;
  }
}
