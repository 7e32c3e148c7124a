// Products of values with the powers of a few queries, in addition to mini_dnn/ptx_attention.cuh:
// #include <mini_dnn/ptx_few_values.cuh>
//
// The emulator's version is in emulator/ptx_attention.h.
#pragma once
#include <mini_dnn/ptx_attention.cuh>

#if !defined(MINI_DNN_EMULATOR) && defined(PTX_WGMMA)
namespace ptx {

// d (64,8) = a (64,16) b (16,8), or += with `accumulate`; halves, both in shared memory. a is transposed: each k has
// its 64 rows side by side (matrix_descriptor_128b), as a key has its values. A column of b has its k one after the
// other.
__device__ __forceinline__ void wgmma_few_values(float (&d)[1][4], unsigned long long a, unsigned long long b,
                                                 bool accumulate) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %6, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, "
      "%5, p, 1, 1, 1, 0; }"
      : PTX_SUMS_8(d, 0)
      : "l"(a), "l"(b), "r"(int(accumulate))
      : "memory");
}

}  // namespace ptx
#endif
