// The tile of a warpgroup, with the errors of a running maximum or smaller ones.
#pragma once
#include "../v11_odd_token/odd_rows.cuh"

// A row gets a new reference if a thread's powers of a block add up to more than this many times a thread's share, a
// quarter, of the row's powers in the block that last set the reference: the first one, or a later one.
constexpr float OUTLIER = 5.0f;
constexpr int EXACT = 16;  // keys of a block whose powers are multiplied without rounding

struct AccurateRows : OddRows {
  unsigned rest[4];  // what rounding takes from the powers of the first keys, packed like them
  half2 most;        // for each row, the limit of the sum of a thread's powers of a block

  // Keeps what rounding takes from a pair of powers, if it belongs to the first keys.
  __device__ __forceinline__ void keep(int i, int r, float x, float y, half2 pair) {
    if (i < EXACT / 8) rest[i * 2 + r] = ptx::pack_halves(x - __low2float(pair), y - __high2float(pair));
  }

  // Computes the powers of a block and adds them as floats: if one of them is far larger than the others, a sum of
  // halves is wrong by more than the powers are. Sets the limits.
  template <int keys>
  __device__ __forceinline__ void new_powers(float scale) {
    float sums[2] = {};
    power<keys>(scale, [&](int i, int r, float x, float y, half2 pair) {
      keep(i, r, x, y, pair);
      sums[r] += x + y;
    });
#pragma unroll
    for (int r = 0; r < 2; r++) {
      sum[r] += sums[r];
      total[r] = half2();
      sums[r] += __shfl_xor_sync(~0u, sums[r], 1);
      sums[r] += __shfl_xor_sync(~0u, sums[r], 2);
    }
    most = __floats2half2_rn(fminf(sums[0] * (OUTLIER / 4), LIMIT), fminf(sums[1] * (OUTLIER / 4), LIMIT));
  }
  __device__ __forceinline__ void first_powers(float scale) { new_powers<BLOCK>(scale); }

  template <int keys, class Ask>
  __device__ __forceinline__ void go_on(float scale, Ask ask) {
    power<keys>(scale, [&](int i, int r, float x, float y, half2 pair) { keep(i, r, x, y, pair); });
    const bool fits = __hblt2(__lows2half2(total[0], total[1]) + __highs2half2(total[0], total[1]), most);
    ask();
    if (__all_sync(~0u, fits)) return;
    raise<keys>(scale);  // or something is NaN
    new_powers<keys>(scale);
  }

  // As in Rows, and adds what rounding took from the first powers, times the same values.
  template <int keys>
  __device__ __forceinline__ void plus_values(unsigned long long v, bool add) {
    Rows::plus_values<keys>(v, add);
    ptx::wgmma_values<D>(o, rest, v, true);
  }
};
