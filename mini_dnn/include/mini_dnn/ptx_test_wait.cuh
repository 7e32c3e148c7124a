// A test of an mbarrier that does not wait, in addition to mini_dnn/ptx.cuh: #include <mini_dnn/ptx_test_wait.cuh>
//
// The emulator's version is in emulator/ptx_attention.h.
#pragma once
#include <mini_dnn/ptx_attention.cuh>

#ifndef MINI_DNN_EMULATOR
namespace ptx {

// Whether the phase is complete. Unlike mbarrier_try_wait, it never sleeps. "Parallel Synchronization and Communication
// Instructions: mbarrier.test_wait".
__device__ __forceinline__ bool mbarrier_test_wait(mbarrier* barrier, unsigned parity) {
  unsigned complete;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(complete)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return complete;
}

}  // namespace ptx
#endif
