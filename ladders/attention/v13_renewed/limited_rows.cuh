// The tile of a warpgroup, whose limits are set while products run.
#pragma once
#include "../v12_accurate/renewed_rows.cuh"

struct LimitedRows : RenewedRows {
  __device__ __forceinline__ void first_powers(float scale) {
    float sums[2];
    add_exactly<BLOCK>(scale, sums, None());
  }

  // The sums of the first block include the odd power.
  __device__ __forceinline__ void settle(bool first) {
    if (first) {
      float sums[2] = {sum[0], sum[1]};
      limit(sums);
    } else {
      OddRows::settle(first);
    }
  }

  template <int keys, class Ask>
  __device__ __forceinline__ void go_on(float scale, Ask ask) {
    RenewedRows::go_on<keys>(scale, ask, None());
  }
};
