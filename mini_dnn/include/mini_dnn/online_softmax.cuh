// A softmax over keys that are processed block by block, for a warp's 16 queries: #include
// <mini_dnn/online_softmax.cuh>
//
// The fragments are those of ptx::mma_m16n8k16: lane 4 g + t has rows g and g + 8, and columns 2 t and 2 t + 1 of each
// 8 columns. A row's output is a sum of values with weights 2^(score - top), where top is the largest score so far.
// When a block raises top, output and sum are multiplied by 2^(old top - new top). M. Milakov, N. Gimelshein,
// arXiv:1805.02867.
#pragma once
#include <cuda_fp16.h>
#include <mini_dnn/ptx_attention.cuh>

// columns: the number of columns of the output.
template <int columns>
struct OnlineSoftmax {
  float o[columns / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};

  // Converts scores of a block of keys to weights, in halves for the left operand of the product with the values.
  // `scale` is the scale of scores, times log2 e. Keys from `valid` on do not count. Keys from `seen` on do not count
  // for this thread's first row, nor keys from seen + 8 on for its second row. At least one key counts.
  template <int keys>
  __device__ __forceinline__ void weigh(float (&s)[keys / 8][4], unsigned (&p)[keys / 16][4], float scale, int valid,
                                        int seen) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int end = min(valid, seen + 8 * r);
      float m = top[r];
#pragma unroll
      for (int i = 0; i < keys / 8; i++)
#pragma unroll
        for (int j = 2 * r; j < 2 * r + 2; j++) {
          s[i][j] = 8 * i + 2 * t + j % 2 < end ? s[i][j] * scale : -INFINITY;
          m = fmaxf(m, s[i][j]);
        }
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));  // the four lanes with the same row
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      const float shift = m == -INFINITY ? 0.0f : m;  // the row has not seen a key yet
      const float factor = ptx::exp2_approx(top[r] - shift);
      top[r] = m;
      sum[r] *= factor;
#pragma unroll
      for (int i = 0; i < columns / 8; i++) o[i][2 * r] *= factor, o[i][2 * r + 1] *= factor;
#pragma unroll
      for (int i = 0; i < keys / 8; i++) {
        const float a = ptx::exp2_approx(s[i][2 * r] - shift), b = ptx::exp2_approx(s[i][2 * r + 1] - shift);
        sum[r] += a + b;
        p[i / 2][i % 2 * 2 + r] = ptx::pack_halves(a, b);
      }
    }
  }

  // Stores this thread's first row and the eighth row after it, if they are among the `rows` rows from the first on.
  // `out` is the first element of the first row, and rows are `pitch` elements apart.
  __device__ __forceinline__ void store(half* out, int rows, int pitch) const {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float all = sum[r] + __shfl_xor_sync(~0u, sum[r], 1);
      all += __shfl_xor_sync(~0u, all, 2);
      const float factor = 1.0f / all;
      if (8 * r >= rows) continue;
#pragma unroll
      for (int i = 0; i < columns / 8; i++)
        *reinterpret_cast<unsigned*>(out + 8ll * r * pitch + 8 * i + 2 * t) =
            ptx::pack_halves(o[i][2 * r] * factor, o[i][2 * r + 1] * factor);
    }
  }
};
