// Part of kernel.cu: halves of a warpgroup's sums.
#pragma once

// The first or the second half of the sums.
template <int half, int groups>
__device__ __forceinline__ auto& half_of(float (&d)[groups][4]) {
  return reinterpret_cast<float (&)[groups / 2][4]>(d[half * (groups / 2)]);
}
