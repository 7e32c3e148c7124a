// The tile of a warpgroup, which begins with the odd key.
#pragma once
#include <cuda_fp16.h>
#include <mini_dnn/ptx_few_scores.cuh>

#include "../v9_final/block.cuh"

// The odd token of a head in shared memory: rows of 128 bytes of its value, key and query. The value is the first one
// of eight rows, which serve as both halves of 16 keys of a product. The key is also the first one of eight, of whose
// product only column 0 is used.
constexpr int ODD_BYTES = 2 * 8 * 128, ODD_VALUE = 0, ODD_KEY = 8 * 128, ODD_QUERY = ODD_KEY + 2 * 128;

// There are 64 keys for each tile. Therefore, the last block of 96 keys is full if and only if the last item of three
// tiles is. Otherwise there is one tile more, which is split, and the last block has 64 keys.
constexpr bool SPLIT = LAST != BLOCK;
static_assert(D == 64 && GROUP_COUNT == 3 && BLOCK == 96 && (LAST == 96 || LAST == 64), "what the rest relies on");

struct OddRows : Rows {
  float odd[1][4];  // scores of the odd key, in column 0
  unsigned odd_power[4];
  half2 total[2];  // sums of the powers of the latest block, which sum does not have yet

  // Called when the scores of the first block are there. Computes those of the odd key, from queries at `q`, the
  // references and the odd power, and starts the product of the odd power and the value. The odd key `counts` in one
  // of the warpgroups that share a tile.
  __device__ __forceinline__ void begin_with(unsigned long long q, unsigned long long odd_key,
                                             unsigned long long odd_value, float scale, bool counts) {
    const int lane = threadIdx.x % 32, t = lane % 4;
    float weight[2];
    ptx::wgmma_fence();
    ptx::wgmma_few_scores<false>(odd, q, odd_key);
#pragma unroll
    for (int i = 1; i < D / 16; i++) ptx::wgmma_few_scores<true>(odd, q + i * (32 >> 4), odd_key + i * (32 >> 4));
    ptx::wgmma_commit();
    largest<BLOCK>(reference, scale);
    ptx::wgmma_wait<0>(odd);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const float score = __shfl_sync(~0u, odd[0][2 * r], lane - t) * scale;
      reference[r] = fmaxf(reference[r], score);
      weight[r] = counts ? ptx::exp2_approx(score - reference[r]) : 0.0f;
      sum[r] = t == 0 ? weight[r] : 0.0f;  // of a thread's own keys
    }
    // Both halves of the product's keys are the same 8 rows.
    odd_power[0] = odd_power[2] = t == 0 ? ptx::pack_halves(weight[0] * 0.5f, 0.0f) : 0;
    odd_power[1] = odd_power[3] = t == 0 ? ptx::pack_halves(weight[1] * 0.5f, 0.0f) : 0;
    ptx::wgmma_fence();
    ptx::wgmma_values<D>(o, odd_power, odd_value, false);
    ptx::wgmma_commit();
  }

  // Computes the powers of the first block, of which none is above 1.
  __device__ __forceinline__ void first_powers(float scale) { power<BLOCK>(scale, None()); }

  struct None {
    __device__ __forceinline__ void operator()(int, int, float, float, half2) const {}
  };
  // As in Rows, but powers are added as halves, in chains, which takes fewer instructions. The last power is added
  // last. `each` gets the powers of each pair of keys i of row r: as floats, and as halves.
  template <int keys, class Each>
  __device__ __forceinline__ void power(float scale, Each each) {
    constexpr int CHAINS = 4;
    half2 sums[2][CHAINS];
#pragma unroll
    for (int i = 0; i < keys / 8; i++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float x = ptx::exp2_approx(fmaf(s[i][2 * r], scale, -reference[r]));
        const float y = ptx::exp2_approx(fmaf(s[i][2 * r + 1], scale, -reference[r]));
        const unsigned packed = ptx::pack_halves(x, y);
        const half2 pair = *reinterpret_cast<const half2*>(&packed);
        p[i / 2][i % 2 * 2 + r] = packed;
        sums[r][i % CHAINS] = i < CHAINS ? pair : sums[r][i % CHAINS] + pair;
        each(i, r, x, y, pair);
      }
#pragma unroll
    for (int r = 0; r < 2; r++) total[r] = ((sums[r][0] + sums[r][1]) + sums[r][2]) + sums[r][3];
  }

  // Adds the latest powers to the sums. Nothing waits for that.
  __device__ __forceinline__ void settle() {
#pragma unroll
    for (int r = 0; r < 2; r++) sum[r] += __half2float(total[r].x) + __half2float(total[r].y);
  }

  // `ask` is called before the vote, so that both are under way at the same time.
  template <int keys, class Ask>
  __device__ __forceinline__ void go_on(float scale, Ask ask) {
    power<keys>(scale, None());
    const half2 both = total[0] + total[1];
    const bool fits = both.x + both.y < __float2half(LIMIT);
    ask();
    if (__all_sync(~0u, fits)) return;
    raise<keys>(scale);  // or something is NaN
    power<keys>(scale, None());
  }

  // Makes the largest score up to the latest block the reference.
  template <int keys>
  __device__ __forceinline__ void raise(float scale) {
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
  }

  // Hands results to another warpgroup, and takes those of another one.
  __device__ __forceinline__ float4 give(float4* state) const {
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) state[i * 128] = float4{o[i][0], o[i][1], o[i][2], o[i][3]};
    return {reference[0], reference[1], sum[0], sum[1]};
  }
  __device__ __forceinline__ void take(const float4* state, const float4& end) {
    const float others[2] = {end.x, end.y}, sums[2] = {end.z, end.w};
    float own[2], other[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const float most = fmaxf(reference[r], others[r]);
      own[r] = ptx::exp2_approx(reference[r] - most), other[r] = ptx::exp2_approx(others[r] - most);
      reference[r] = most;
      sum[r] = sum[r] * own[r] + sums[r] * other[r];
    }
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
      const float4 more = state[i * 128];
      o[i][0] = o[i][0] * own[0] + more.x * other[0], o[i][1] = o[i][1] * own[0] + more.y * other[0];
      o[i][2] = o[i][2] * own[1] + more.z * other[1], o[i][3] = o[i][3] * own[1] + more.w * other[1];
    }
  }
};
