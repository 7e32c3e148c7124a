// Products of a warpgroup with 32 columns (sm_90a): #include <mini_dnn/ptx_narrow.cuh>, beside ptx.cuh.
#pragma once
#include <mini_dnn/ptx.cuh>

#if defined(PTX_WGMMA) && !defined(MINI_DNN_EMULATOR)
namespace ptx {

#define PTX_NARROW(type)                                                                                           \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type  \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, %19, " \
               "0; }"                                                                                              \
               : PTX_SUMS_32_FROM(d, 0)                                                                            \
               : "l"(a), "l"(b), "r"(int(accumulate)), "n"(transposed_a)                                           \
               : "memory")

// As wgmma_m64k16 of two operands in shared memory, where b is not transposed.
template <class Type, bool transposed_a>
__device__ __forceinline__ void wgmma_m64n32k16(float (&d)[4][4], unsigned long long a, unsigned long long b,
                                                bool accumulate) {
  if constexpr (Type::is_half) {
    PTX_NARROW("f16");
  } else {
    PTX_NARROW("bf16");
  }
}

}  // namespace ptx
#endif
