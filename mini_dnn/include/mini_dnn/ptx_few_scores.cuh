// Scores of a few keys, in addition to mini_dnn/ptx_attention.cuh: #include <mini_dnn/ptx_few_scores.cuh>
//
// The emulator's version is in emulator/ptx_attention.h.
#pragma once
#include <mini_dnn/ptx_attention.cuh>

#if !defined(MINI_DNN_EMULATOR) && defined(PTX_WGMMA)
namespace ptx {

#define PTX_NUMBERS_8 "%0, %1, %2, %3"
#define PTX_PART_8(d) PTX_SUMS_8(d, 0)

// As wgmma_scores, with 8 columns.
template <bool accumulate>
__device__ __forceinline__ void wgmma_few_scores(float (&d)[1][4], unsigned long long a, unsigned long long b) {
  constexpr int columns = 8;
  PTX_SCORES(8, 4, 5, 6);
}

}  // namespace ptx
#endif
