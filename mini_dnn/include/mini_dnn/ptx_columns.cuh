// Products of a warpgroup with 120 columns, and matrices that begin with any line (sm_90a), in addition to ptx.cuh:
// #include <mini_dnn/ptx_columns.cuh>
#pragma once
#include <mini_dnn/ptx.cuh>

#if defined(PTX_WGMMA) && !defined(MINI_DNN_EMULATOR)
namespace ptx {

#define PTX_SUMS_120(d) PTX_SUMS_96(d), PTX_SUMS_24_FROM(d, 12)
#define PTX_REGISTERS_120 PTX_REGISTERS_96 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59"

// A matrix_descriptor_128b of a matrix that is not transposed. It may also be advanced by lines of 128 bytes, to a
// matrix that begins with any of the eight rows of a swizzle pattern. This works because the swizzle depends only on
// addresses, and its pattern still starts at multiples of 1024, as the field "base offset" requires.
__device__ __forceinline__ unsigned long long matrix_descriptor_128b_lines(const void* p, unsigned leading,
                                                                           unsigned stride) {
  return matrix_descriptor_128b(p, leading, stride);
}
// As wgmma_m64k16 of two operands in shared memory, neither transposed, halves.
__device__ __forceinline__ void wgmma_m64n120k16(float (&d)[15][4], unsigned long long a, unsigned long long b,
                                                 bool accumulate) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %62, 0; wgmma.mma_async.sync.aligned.m64n120k16.f32.f16.f16 "
      "{" PTX_REGISTERS_120 "}, %60, %61, p, 1, 1, 0, 0; }"
      : PTX_SUMS_120(d)
      : "l"(a), "l"(b), "r"(int(accumulate))
      : "memory");
}

}  // namespace ptx
#endif
