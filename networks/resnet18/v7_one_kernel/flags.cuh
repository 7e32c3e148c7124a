// The flags that tiles wait for and release: part of kernel.cu.
#pragma once
#include <mini_dnn/ptx_im2col.cuh>

namespace flags {

// Orders writes to global memory before later reads by the copy engine, and the reverse.
__device__ __forceinline__ void fence_proxy_async_global() {
#ifndef MINI_DNN_EMULATOR
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

// Called by one thread, after a barrier with the threads of its warp or block that have written the flag's data.
__device__ __forceinline__ void release(int* flag) {
  fence_proxy_async_global();
  __threadfence();
  atomicAdd(flag, 1);
}

// Waits until each flag from `first` to `last` has been released `often` times.
__device__ __forceinline__ void acquire(const int* flags, int first, int last, int often) {
  for (int i = first; i <= last; i++)
    while (*reinterpret_cast<const volatile int*>(flags + i) < often) __nanosleep(20);
  __threadfence();
  fence_proxy_async_global();
}

}  // namespace flags
