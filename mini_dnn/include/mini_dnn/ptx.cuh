// PTX instructions that CUDA C++ does not provide, one small function each: #include <mini_dnn/ptx.cuh>
//
// On a GPU they are inline PTX; on older architectures, an older form with the same meaning. The emulator has exact
// equivalents in C++, which check more than the hardware does. Comments cite sections of the PTX ISA by their titles.
// PTX_BULK is defined if there are bulk copies and mbarriers (sm_90), and PTX_WGMMA if there are products of a
// warpgroup (only sm_90a). -DPTX_NO_BULK and -DPTX_NO_WGMMA disable them, to try the older form.
#pragma once

#if (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900) && !defined(PTX_NO_BULK)  // no architecture: nvcc's host pass
#define PTX_BULK 1
#endif
#if (defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)) && !defined(PTX_NO_WGMMA)
#define PTX_WGMMA 1
#endif

#ifdef MINI_DNN_EMULATOR
namespace ptx = emulator::ptx;
#else

namespace ptx {

__device__ __forceinline__ unsigned shared_address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

// The larger value, or NaN if one of them is NaN, where fmaxf returns the other one. "Floating Point Instructions:
// max".
__device__ __forceinline__ float max_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#else
  return a != a || a > b ? a : b;
#endif
}

// ---- Halves in registers

// Two floats, rounded to nearest even. "Data Movement and Conversion Instructions: cvt".
__device__ __forceinline__ unsigned pack_halves(float low, float high) {
  unsigned both;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#else
  asm("{.reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h};}"
      : "=r"(both)
      : "f"(low), "f"(high));
#endif
  return both;
}
__device__ __forceinline__ float2 unpack_halves(unsigned both) {
  float2 value;
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(value.x), "=f"(value.y)
      : "r"(both));
  return value;
}

// ---- Bfloats in registers: the upper halves of floats

// Two floats, rounded to nearest even; NaN becomes 0x7fff.
__device__ __forceinline__ unsigned pack_bfloats(float low, float high) {
  unsigned both;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#else
  const unsigned l = __float_as_uint(low), h = __float_as_uint(high);
  both = low != low ? 0x7fff : (l + 0x7fff + (l >> 16 & 1)) >> 16;
  both |= high != high ? 0x7fff0000 : (h + 0x7fff + (h >> 16 & 1)) & 0xffff0000;
#endif
  return both;
}
__device__ __forceinline__ float2 unpack_bfloats(unsigned both) {
  return make_float2(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000));
}

// ---- Copies from global to shared memory that a thread starts, and that run while it continues. "Data Movement and
// Conversion Instructions: cp.async" (non-bulk copy). After the wait for their group, this thread may read the data;
// other threads need a barrier after that.

// Copies 4, 8 or 16 bytes; both addresses are multiples of this number. Bytes from `valid` on become zero and are not
// read. Before sm_80, this is a plain load and store.
template <int bytes>
__device__ __forceinline__ void cp_async(void* shared, const void* global, int valid = bytes) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
#if __CUDA_ARCH__ >= 800
  if constexpr (bytes == 16)  // past L1, which has no use for what goes to shared memory
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(valid)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)), "l"(global), "n"(bytes),
                 "r"(valid)
                 : "memory");
#else
  struct alignas(bytes) Vector {
    char part[bytes];
  };
  Vector value = {};
  if (valid == bytes) value = *static_cast<const Vector*>(global);
  for (int i = 0; valid < bytes && i < valid; i++) value.part[i] = static_cast<const char*>(global)[i];
  *static_cast<Vector*>(shared) = value;
#endif
}
// Closes a group: this thread's copies since the last commit.
__device__ __forceinline__ void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most the `groups` latest groups of this thread are in flight.
template <int groups>
__device__ __forceinline__ void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
#endif
}

typedef unsigned long long mbarrier;  // in shared memory; not used before sm_90

#ifdef PTX_BULK
// ---- Barriers in shared memory that count arrivals and bytes. "Parallel Synchronization and Communication
// Instructions: mbarrier". A phase is complete when all arrivals and all expected bytes have come; then the next phase
// begins. Phases alternate in parity, and the first one has parity 0. A wait for a parity returns when the latest phase
// of that parity is complete.

// Called by one thread, which then calls fence_proxy_async(); __syncthreads() follows.
__device__ __forceinline__ void mbarrier_init(mbarrier* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(mbarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives once, and makes the phase wait for so many more bytes.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(mbarrier* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// Whether the phase is complete. The thread may sleep for a while before the answer is no.
__device__ __forceinline__ bool mbarrier_try_wait(mbarrier* barrier, unsigned parity) {
  unsigned complete;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(complete)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return complete;
}
__device__ __forceinline__ void mbarrier_wait(mbarrier* barrier, unsigned parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

// ---- Bulk copies: one thread starts them, and the copy engine executes them. "Data Movement and Conversion
// Instructions: cp.async.bulk" (bulk copy). Both addresses and the size are multiples of 16 bytes.

// Global to shared memory. Threads may read the data after they have waited for the phase of `barrier` that expects its
// bytes.
__device__ __forceinline__ void bulk_load(void* shared, const void* global, unsigned bytes, mbarrier* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
// Global memory to L2, where later reads find it. "cp.async.bulk.prefetch".
__device__ __forceinline__ void bulk_prefetch(const void* global, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}
// Shared to global memory, in groups of this thread. Before it, all threads that wrote the source call
// fence_proxy_async() and then meet at a barrier.
__device__ __forceinline__ void bulk_store(void* global, const void* shared, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared_address(shared)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until all but the `groups` latest groups have read their source, which may then be written again.
template <int groups>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups) : "memory");
}
// Waits until all but the `groups` latest groups are complete.
template <int groups>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(groups) : "memory");
}
#endif

// Orders this thread's accesses to shared memory before later accesses of the copy engine. "membar / fence". It does
// nothing before sm_90, where there is no such engine.
__device__ __forceinline__ void fence_proxy_async() {
#ifdef PTX_BULK
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// ---- A kernel that is launched early (Launch(..., early=True) in a plan) may start before the previous one has ended.
// "Parallel Synchronization and Communication Instructions: griddepcontrol". These functions do nothing in other
// launches, and before sm_90.

// Waits until the previous kernels have ended and their writes are visible. It must come before the first access to
// data that they write, and before the first write to data that they read.
__device__ __forceinline__ void grid_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel start, when all blocks of this one have called it or ended.
__device__ __forceinline__ void grid_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace ptx

#include <mini_dnn/ptx_products.cuh>
#include <mini_dnn/ptx_tensor.cuh>
#include <mini_dnn/ptx_warpgroup.cuh>
#include <mini_dnn/ptx_cluster.cuh>
#endif
