// Products of a warpgroup with 16 or 32 columns (sm_90a): #include <mini_dnn/ptx_narrow.cuh>
//
// The emulator's version is in emulator/warpgroup.h.
#pragma once
#include <mini_dnn/ptx.cuh>

#if defined(PTX_WGMMA) && !defined(MINI_DNN_EMULATOR)
namespace ptx {

#define PTX_SUMS_16(d) PTX_SUMS_8(d, 0), PTX_SUMS_8(d, 1)
#define PTX_SUMS_32(d) PTX_SUMS_32_FROM(d, 0)
#define PTX_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define PTX_REGISTERS_32 PTX_REGISTERS_16 ", %8, %9, %10, %11, %12, %13, %14, %15"

// As wgmma_m64k16 of two operands in shared memory.
template <int columns, class Type, bool transposed_a, bool transposed_b>
__device__ __forceinline__ void wgmma_narrow(float (&d)[columns / 8][4], unsigned long long a, unsigned long long b,
                                             bool accumulate) {
  static_assert(columns == 16 || columns == 32, "the sizes that are written out here");
  PTX_PRODUCT_OF(16, 8, 9, 10, 11, 12)
  PTX_PRODUCT_OF(32, 16, 17, 18, 19, 20)
}

}  // namespace ptx
#endif
