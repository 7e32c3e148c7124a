// The tile of a warpgroup, whose rows get a new reference if a power is large.
#pragma once
#include "../v11_odd_token/odd_rows.cuh"

// A row gets a new reference if a thread's powers of a block add up to more than this many times a thread's share, a
// quarter, of the row's powers in the block that last set the reference: the first one, or a later one.
constexpr float OUTLIER = 5.0f;

struct RenewedRows : OddRows {
  half2 most;  // for each row, the limit of the sum of a thread's powers of a block

  // Computes the powers of a block and adds them as floats: if one of them is far larger than the others, a sum of
  // halves is wrong by more than the powers are. Sets the limits. `each` is as in OddRows.
  template <int keys, class Each>
  __device__ __forceinline__ void new_powers(float scale, Each each) {
    float sums[2] = {};
    power<keys>(scale, [&](int i, int r, float x, float y, half2 pair) {
      each(i, r, x, y, pair);
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

  __device__ __forceinline__ void first_powers(float scale) { new_powers<BLOCK>(scale, None()); }

  template <int keys, class Ask, class Each = None>
  __device__ __forceinline__ void go_on(float scale, Ask ask, Each each = None()) {
    power<keys>(scale, each);
    const bool fits = __hblt2(__lows2half2(total[0], total[1]) + __highs2half2(total[0], total[1]), most);
    ask();
    if (__all_sync(~0u, fits)) return;
    raise<keys>(scale);  // or something is NaN
    new_powers<keys>(scale, each);
  }
};
