// Products of a warpgroup with any multiple of 16 columns except 48 (sm_90a): #include <mini_dnn/ptx_widths.cuh>
//
// The emulator's version is in emulator/warpgroup.h.
#pragma once
#include <mini_dnn/ptx_narrow.cuh>

#if defined(PTX_WGMMA) && !defined(MINI_DNN_EMULATOR)
namespace ptx {

#define PTX_SUMS_16_FROM(d, i) PTX_SUMS_8(d, i), PTX_SUMS_8(d, i + 1)
#define PTX_SUMS_80(d) PTX_SUMS_64(d), PTX_SUMS_16_FROM(d, 8)
#define PTX_SUMS_112(d) PTX_SUMS_96(d), PTX_SUMS_16_FROM(d, 12)
#define PTX_SUMS_144(d) PTX_SUMS_128(d), PTX_SUMS_16_FROM(d, 16)
#define PTX_SUMS_160(d) PTX_SUMS_128(d), PTX_SUMS_32_FROM(d, 16)
#define PTX_SUMS_176(d) PTX_SUMS_160(d), PTX_SUMS_16_FROM(d, 20)
#define PTX_SUMS_208(d) PTX_SUMS_192(d), PTX_SUMS_16_FROM(d, 24)
#define PTX_SUMS_224(d) PTX_SUMS_192(d), PTX_SUMS_32_FROM(d, 24)
#define PTX_SUMS_240(d) PTX_SUMS_224(d), PTX_SUMS_16_FROM(d, 28)
#define PTX_REGISTERS_80 PTX_REGISTERS_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define PTX_REGISTERS_112 PTX_REGISTERS_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define PTX_REGISTERS_144 PTX_REGISTERS_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define PTX_REGISTERS_160 PTX_REGISTERS_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define PTX_REGISTERS_176 PTX_REGISTERS_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define PTX_REGISTERS_208 PTX_REGISTERS_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define PTX_REGISTERS_224 PTX_REGISTERS_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define PTX_REGISTERS_240 PTX_REGISTERS_224 ", %112, %113, %114, %115, %116, %117, %118, %119"

// As wgmma_m64k16 of two operands in shared memory.
template <int columns, class Type, bool transposed_a, bool transposed_b>
__device__ __forceinline__ void wgmma_any_width(float (&d)[columns / 8][4], unsigned long long a, unsigned long long b,
                                                bool accumulate) {
  static_assert(columns % 16 == 0 && columns != 48 && columns <= 256, "a multiple of 16, up to 256, except 48");
  if constexpr (columns < 48) {
    wgmma_narrow<columns, Type, transposed_a, transposed_b>(d, a, b, accumulate);
  } else if constexpr (columns == 64 || columns == 96 || columns == 128 || columns == 192 || columns == 256) {
    wgmma_m64k16<columns, Type, transposed_a, transposed_b>(d, a, b, accumulate);
  } else {
    PTX_PRODUCT_OF(80, 40, 41, 42, 43, 44)
    PTX_PRODUCT_OF(112, 56, 57, 58, 59, 60)
    PTX_PRODUCT_OF(144, 72, 73, 74, 75, 76)
    PTX_PRODUCT_OF(160, 80, 81, 82, 83, 84)
    PTX_PRODUCT_OF(176, 88, 89, 90, 91, 92)
    PTX_PRODUCT_OF(208, 104, 105, 106, 107, 108)
    PTX_PRODUCT_OF(224, 112, 113, 114, 115, 116)
    PTX_PRODUCT_OF(240, 120, 121, 122, 123, 124)
  }
}

}  // namespace ptx
#endif
