// What tiles wait for, and how they say that they are done: part of kernel.cu.
#pragma once
#include <mini_dnn/ptx_im2col.cuh>

namespace flags {

// What was written to global memory comes before what the copy engine reads of it, or the other way round.
__device__ __forceinline__ void fence_proxy_async_global() {
#ifndef MINI_DNN_EMULATOR
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

// By one thread, when others of its warp or block have written what the flag stands for, and have met it.
__device__ __forceinline__ void release(int* flag) {
  fence_proxy_async_global();
  __threadfence();
  atomicAdd(flag, 1);
}

// Until all flags from `first` to `last` have been released so often.
__device__ __forceinline__ void acquire(const int* flags, int first, int last, int often) {
  for (int i = first; i <= last; i++)
    while (*reinterpret_cast<const volatile int*>(flags + i) < often) __nanosleep(20);
  __threadfence();
  fence_proxy_async_global();
}

}  // namespace flags
