// Scores of a tile of queries for some of the keys, and their powers.
#pragma once
#include <mini_dnn/ptx_scores.cuh>

// A warp has 16 queries; lane 4 g + t has rows g and g + 8, of each 8 columns 2 t and 2 t + 1.
template <int N>
struct Part {
  static constexpr int GROUPS = N / 8, STEPS = (N + 15) / 16;
  float s[GROUPS][4];
  unsigned p[STEPS][4];  // powers, as the left operand of the product with the values

  __device__ __forceinline__ void times_keys(unsigned long long q, unsigned long long k) {
    ptx::wgmma_row_scores<N, false>(s, q, k);
#pragma unroll
    for (int i = 1; i < D / 16; i++) ptx::wgmma_row_scores<N, true>(s, q + i * (32 >> 4), k + i * (32 >> 4));
  }

  // Hides the keys from `valid` on, which are among the last 16.
  __device__ __forceinline__ void hide(int valid) {
#pragma unroll
    for (int i = max(0, GROUPS - 2); i < GROUPS; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (8 * i + 2 * (int(threadIdx.x) % 4) + j % 2 >= valid) s[i][j] = NEGATIVE ? INFINITY : -INFINITY;
  }

  // The largest score of a row, scaled.
  __device__ __forceinline__ void largest(float (&m)[2], float scale) const {
    constexpr float sign = NEGATIVE ? -1.0f : 1.0f;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float two[2] = {sign * s[0][2 * r], sign * s[0][2 * r + 1]};  // a maximum waits for the previous one
#pragma unroll
      for (int i = 1; i < GROUPS; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) two[j] = fmaxf(two[j], sign * s[i][2 * r + j]);
      m[r] = fmaxf(two[0], two[1]);
    }
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2)
#pragma unroll
      for (int r = 0; r < 2; r++) m[r] = fmaxf(m[r], __shfl_xor_sync(~0u, m[r], lanes));
#pragma unroll
    for (int r = 0; r < 2; r++) m[r] *= sign * scale;
  }

  // Computes the powers 2^(scale s - reference), packed as halves, and a thread's sums of them.
  __device__ __forceinline__ void power(const float (&reference)[2], float (&total)[2], float scale) {
    total[0] = total[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < GROUPS; i++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        unsigned& pair = p[i / 2][i % 2 * 2 + r];
        const float x = ptx::exp2_approx(fmaf(s[i][2 * r], scale, -reference[r]));
        const float y = ptx::exp2_approx(fmaf(s[i][2 * r + 1], scale, -reference[r]));
        pair = ptx::pack_halves(x, y);
        total[r] += x + y;
      }
    if (GROUPS % 2) p[STEPS - 1][2] = p[STEPS - 1][3] = 0;  // half of the last product
  }
};
