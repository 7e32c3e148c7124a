// Part of kernel.cu: a fence between plain accesses and those of the copy engine.

// Orders writes to global memory before reads by the copy engine, and the reverse.
__device__ __forceinline__ void fence_proxy_async_global() {
#ifndef MINI_DNN_EMULATOR
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}
