// Scores of a whole row of keys in few products, in addition to mini_dnn/ptx_attention.cuh:
// #include <mini_dnn/ptx_scores.cuh>
//
// The emulator's version is in emulator/ptx_attention.h.
#pragma once
#include <mini_dnn/ptx_attention.cuh>

#if !defined(MINI_DNN_EMULATOR) && defined(PTX_WGMMA)
namespace ptx {

#define PTX_NUMBERS_72 PTX_NUMBERS_64 ", %32, %33, %34, %35"
#define PTX_PART_72(d) PTX_PART_64(d), PTX_SUMS_8(d, 8)

// As wgmma_scores, also with 72 and 128 columns.
template <int columns, bool accumulate, int groups>
__device__ __forceinline__ void wgmma_row_scores(float (&d)[groups][4], unsigned long long a, unsigned long long b) {
  static_assert(columns / 8 <= groups, "d has no room for so many columns");
  PTX_SCORES(72, 36, 37, 38);
  PTX_SCORES(128, 64, 65, 66);
  if constexpr (columns != 72 && columns != 128) wgmma_scores<columns, accumulate>(d, a, b);
}

}  // namespace ptx
#endif
