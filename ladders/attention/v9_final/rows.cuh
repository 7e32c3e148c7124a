// What a warpgroup keeps of its 64 queries: scores of a block of keys, their powers, sums and the output so far.
#pragma once
#include <mini_dnn/ptx_attention.cuh>

constexpr float LIMIT = 8192.0f;  // for a thread's sum of the powers of a block: all of them then fit in halves

// A warp has 16 queries; lane 4 g + t has rows g and g + 8, of each 8 columns 2 t and 2 t + 1.
// Powers are 2^(scale s - reference). The reference is the row's largest score of the first block. It changes only if
// the sum of a block's powers exceeds LIMIT, so the loop computes no maximum. The reference is never above the true
// maximum, so no power that matters is lost.
struct Rows {
  static constexpr int GROUPS = BLOCK / 8, COLUMNS = D / 8;
  float s[GROUPS][4];
  float o[COLUMNS][4];
  unsigned p[GROUPS / 2][4];  // powers of the block before, as the left operand of the product with its values
  float reference[2], sum[2];

  // Hides the keys that do not count: those beyond `valid` and, with a causal mask, those beyond r in row r. Both are
  // counted from the block's first key on, and `row` is that of this thread's first row.
  template <int keys>
  __device__ __forceinline__ void hide(int valid, int row) {
    const int t = threadIdx.x % 4;
    const float least = NEGATIVE ? INFINITY : -INFINITY;
#pragma unroll
    for (int i = 0; i < keys / 8; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int key = 8 * i + 2 * t + j % 2;
        if (key >= valid || (CAUSAL && key > row + j / 2 * 8)) s[i][j] = least;
      }
  }

  // The largest of a row's scores of a block, scaled.
  template <int keys>
  __device__ __forceinline__ void largest(float (&m)[2], float scale) const {
    constexpr float sign = NEGATIVE ? -1.0f : 1.0f;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      m[r] = sign * s[0][2 * r];
#pragma unroll
      for (int i = 0; i < keys / 8; i++) m[r] = fmaxf(m[r], fmaxf(sign * s[i][2 * r], sign * s[i][2 * r + 1]));
      m[r] = fmaxf(m[r], __shfl_xor_sync(~0u, m[r], 1));
      m[r] = fmaxf(m[r], __shfl_xor_sync(~0u, m[r], 2)) * (sign * scale);
    }
  }

  // Computes the powers of a block, packed as halves. Returns true if all are small enough.
  template <int keys>
  __device__ __forceinline__ bool power(float (&total)[2], float scale) {
    total[0] = total[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < keys / 8; i++) {
      float e[4];
#pragma unroll
      for (int j = 0; j < 4; j++) e[j] = ptx::exp2_approx(fmaf(s[i][j], scale, -reference[j / 2]));
      p[i / 2][i % 2 * 2] = ptx::pack_halves(e[0], e[1]);
      p[i / 2][i % 2 * 2 + 1] = ptx::pack_halves(e[2], e[3]);
      total[0] += e[0] + e[1];
      total[1] += e[2] + e[3];
    }
    return total[0] < LIMIT && total[1] < LIMIT;
  }

  // Called before a row's first block of keys. A reference must not be above the largest score, nor far below it.
  template <int keys>
  __device__ __forceinline__ void begin(float scale) {
    largest<keys>(reference, scale);
    sum[0] = sum[1] = 0.0f;
  }

  // Computes the powers of a block. o is complete up to the previous block, and has no meaning if this is the first
  // one.
  template <int keys>
  __device__ __forceinline__ void go_on(float scale) {
    float total[2];
    if (!__all_sync(~0u, power<keys>(total, scale))) {  // or something is NaN
      float m[2];
      largest<keys>(m, scale);
#pragma unroll
      for (int r = 0; r < 2; r++) {
        m[r] = fmaxf(m[r], reference[r]);
        const float factor = ptx::exp2_approx(reference[r] - m[r]);
        reference[r] = m[r];
        sum[r] *= factor;
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) o[i][2 * r] *= factor, o[i][2 * r + 1] *= factor;
      }
      power<keys>(total, scale);
    }
    sum[0] += total[0];
    sum[1] += total[1];
  }

  // Multiplies queries at `q` by keys at `k`. q_part and k_part are the bytes to a tile's next 64 columns.
  template <int keys>
  __device__ __forceinline__ void times_keys(unsigned long long q, unsigned long long k) {
    constexpr unsigned q_part = GROUP_COUNT * 64 * 128, k_part = BLOCK * 128;
    ptx::wgmma_scores<keys, false>(s, q, k);
#pragma unroll
    for (int i = 1; i < D / 16; i++)
      ptx::wgmma_scores<keys, true>(s, q + ((i / 4 * q_part + i % 4 * 32) >> 4),
                                    k + ((i / 4 * k_part + i % 4 * 32) >> 4));
  }

  // Adds powers times values at `v` to o, or replaces o by them.
  template <int keys>
  __device__ __forceinline__ void plus_values(unsigned long long v, bool add) {
#pragma unroll
    for (int i = 0; i < keys / 16; i++) ptx::wgmma_values<D>(o, p[i], v + i * (2048 >> 4), add || i > 0);
  }

  // Makes the sums those of rows, not of a thread's own keys.
  __device__ __forceinline__ void add_lanes() {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
      sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
    }
  }

  // Writes the output, as halves, to 16 rows in shared memory, in the layout of the tensor map of o.
  __device__ __forceinline__ void put(char* rows) const {
    const int lane = threadIdx.x % 32, row = lane % 16;
    constexpr int part = GROUP_COUNT * 64 * 128, pitch = D < 64 ? 2 * D : 128;
    const float factor[2] = {__fdividef(1.0f, sum[0]), __fdividef(1.0f, sum[1])};
#pragma unroll
    for (int i = 0; i < COLUMNS; i += 2) {
      const float *const x = o[i], *const y = o[i + 1];
      const unsigned both[4] = {
          ptx::pack_halves(x[0] * factor[0], x[1] * factor[0]), ptx::pack_halves(x[2] * factor[1], x[3] * factor[1]),
          ptx::pack_halves(y[0] * factor[0], y[1] * factor[0]), ptx::pack_halves(y[2] * factor[1], y[3] * factor[1])};
      const int chunk = i % 8 + lane / 16;
      ptx::stmatrix(rows + i / 8 * part + row * pitch + (D < 64 ? chunk : chunk ^ row % 8) * 16, both);
    }
  }
};
