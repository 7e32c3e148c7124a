// One thread of a warp, in addition to mini_dnn/ptx.cuh: #include <mini_dnn/ptx_elect.cuh>
//
// The emulator's version is in emulator/ptx_cluster.h.
#pragma once
#include <mini_dnn/ptx.cuh>

#if defined(PTX_BULK) && !defined(MINI_DNN_EMULATOR)
namespace ptx {

// True for one thread of a warp whose threads all call it. The compiler knows that it is one thread. If the warp agrees
// on the arguments of a tensor copy, they stay in uniform registers, where the instruction needs them. If a thread is
// chosen by its index, the compiler moves them there before each copy, in a loop over the threads that may have
// different ones. "Parallel Synchronization and Communication Instructions: elect.sync".
__device__ __forceinline__ bool elect() {
  unsigned chosen;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
  return chosen;
}

}  // namespace ptx
#endif
