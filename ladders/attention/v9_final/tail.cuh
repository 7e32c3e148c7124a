// The at most 8 queries after the last full tile of 64, computed by three warps that share the keys.
#pragma once
#include "rows.cuh"

constexpr int TAIL_WARPS = 3, FEW = 8;
constexpr int STATE = D / 16 * 4 + 4;  // numbers of a thread that one warp hands to another

// The position of 16 bytes of row r, in rows of 128 bytes with 128-byte swizzle.
__device__ __forceinline__ const char* chunk_at(const char* tile, int row, int chunk) {
  return tile + row * 128 + ((chunk ^ row % 8) << 4);
}

// Everything is transposed, so that the queries are the 8 columns of products m16n8k16: lane 4 g + t has keys (or
// columns of values) g and g + 8, and queries 2 t and 2 t + 1. A warp takes every third 16 keys of a block.
struct Tail {
  unsigned q[D / 16][2];
  float o[D / 16][4], reference[2], sum[2];

  __device__ __forceinline__ void start(const char* queries) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
      unsigned b[4];
      ptx::ldmatrix(b, chunk_at(queries, lane % 8, 4 * i + lane / 8));
      q[2 * i][0] = b[0], q[2 * i][1] = b[1], q[2 * i + 1][0] = b[2], q[2 * i + 1][1] = b[3];
    }
#pragma unroll
    for (int i = 0; i < D / 16; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
    reference[0] = reference[1] = -INFINITY;  // so that the first block raises it
    sum[0] = sum[1] = 0.0f;
  }

  static __device__ __forceinline__ float over_keys(float m) {
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, lanes));
    return m;
  }

  __device__ __forceinline__ void fade(int c, float raised) {
    const float factor = ptx::exp2_approx(reference[c] - raised);
    reference[c] = raised;
    sum[c] *= factor;
#pragma unroll
    for (int i = 0; i < D / 16; i++) o[i][c] *= factor, o[i][c + 2] *= factor;
  }

  __device__ __forceinline__ bool power(const float (&s)[4], unsigned (&p)[2], float (&total)[2], int valid,
                                        float scale) const {
    total[0] = total[1] = 0.0f;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const bool counts = (int)threadIdx.x % 32 / 4 + 8 * r < valid;
      const float x = counts ? ptx::exp2_approx(fmaf(s[2 * r], scale, -reference[0])) : 0.0f;
      const float y = counts ? ptx::exp2_approx(fmaf(s[2 * r + 1], scale, -reference[1])) : 0.0f;
      p[r] = ptx::pack_halves(x, y);
      total[0] += x, total[1] += y;
    }
    return total[0] < LIMIT && total[1] < LIMIT;
  }

  // Processes 16 keys, starting at row `at` of a block, of which `valid` count.
  __device__ __forceinline__ void step(const char* keys, const char* values, int at, int valid, float scale) {
    const int lane = threadIdx.x % 32;
    float s[4] = {}, other[4] = {}, total[2];  // two sums, because a product waits for the previous one to the same sum
    unsigned a[4], p[2];
#pragma unroll
    for (int k = 0; k < D / 16; k += 2) {
      ptx::ldmatrix(a, chunk_at(keys, at + lane % 16, 2 * k + lane / 16));
      ptx::mma_m16n8k16(s, a, q[k]);
      ptx::ldmatrix(a, chunk_at(keys, at + lane % 16, 2 * k + 2 + lane / 16));
      ptx::mma_m16n8k16(other, a, q[k + 1]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) s[i] += other[i];
    if (!__all_sync(~0u, power(s, p, total, valid, scale))) {
#pragma unroll
      for (int c = 0; c < 2; c++) {
        float m = -INFINITY;
#pragma unroll
        for (int r = 0; r < 2; r++)
          if (lane / 4 + 8 * r < valid) m = fmaxf(m, s[2 * r + c] * scale);
        fade(c, fmaxf(reference[c], over_keys(m)));
      }
      power(s, p, total, valid, scale);
    }
    sum[0] += total[0], sum[1] += total[1];
    const unsigned b[2] = {ptx::transpose_8x8(p[0]), ptx::transpose_8x8(p[1])};
#pragma unroll
    for (int j = 0; j < D / 16; j++) {
      ptx::ldmatrix_trans(a, chunk_at(values, at + lane % 8 + lane / 16 * 8, 2 * j + lane / 8 % 2));
      ptx::mma_m16n8k16(o[j], a, b);
    }
  }

  // Sends results to another warp through shared memory, and receives those of another one.
  __device__ __forceinline__ void give(float (*state)[32]) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < STATE - 4; i++) state[i][lane] = o[i / 4][i % 4];
#pragma unroll
    for (int c = 0; c < 2; c++) state[STATE - 4 + c][lane] = reference[c], state[STATE - 2 + c][lane] = sum[c];
  }
  __device__ __forceinline__ void take(const float (*state)[32]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const float other = state[STATE - 4 + c][lane];
      fade(c, fmaxf(reference[c], other));
      const float factor = ptx::exp2_approx(other - reference[c]);
      sum[c] += state[STATE - 2 + c][lane] * factor;
#pragma unroll
      for (int i = c; i < STATE - 4; i += 2) o[i / 4][i % 4] += state[i][lane] * factor;
    }
  }

  // Writes `rows` queries to global memory, `pitch` pairs of halves apart.
  __device__ __forceinline__ void put(unsigned* out, int rows, int pitch) const {
    const int lane = threadIdx.x % 32;
    float factor[2];
#pragma unroll
    for (int c = 0; c < 2; c++) {
      float all = sum[c];
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) all += __shfl_xor_sync(~0u, all, lanes);
      factor[c] = __fdividef(1.0f, all);
    }
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const unsigned pair =
            ptx::transpose_8x8(ptx::pack_halves(o[i][2 * r] * factor[0], o[i][2 * r + 1] * factor[1]));
        if (lane / 4 < rows) out[lane / 4 * pitch + 8 * i + 4 * r + lane % 4] = pair;
      }
  }
};
