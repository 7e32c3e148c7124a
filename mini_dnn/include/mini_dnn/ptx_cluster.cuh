// Clusters, whose blocks can access each other's shared memory: part of mini_dnn/ptx.cuh, which includes it. sm_90.
#pragma once

#ifdef PTX_BULK
namespace ptx {

// ---- Clusters. `Launch(..., cluster=2)` in variant.py launches them.

// The rank of this block. "Special Registers: %cluster_ctarank".
__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// A barrier for all threads of a cluster that have not returned. "Parallel Synchronization and Communication
// Instructions: barrier.cluster". Each thread arrives, and waits later. After they have waited, other threads see what
// it wrote before it arrived. No block may return while others still use its shared memory, so end with a
// cluster_sync().
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
// The same without ordering memory, which is faster: for arrivals that publish nothing, and for those after
// fence_mbarrier_init().
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

// The same place in the shared memory of block `rank`, for plain loads and stores. "Data Movement and Conversion
// Instructions: mapa".
template <class T>
__device__ __forceinline__ T* cluster_shared(T* p, unsigned rank) {
  unsigned long long there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(rank));
  return reinterpret_cast<T*>(there);
}
// The address of a place in shared memory, of any block of the cluster, as PTX instructions for clusters take it.
__device__ __forceinline__ unsigned any_shared_address(const void* p) {
  unsigned address;
  asm("{ .reg .u64 a; cvta.to.shared::cluster.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(address) : "l"(p));
  return address;
}

// ---- mbarriers of other blocks

// Called after mbarrier_init by the same thread if other blocks use the mbarrier; a barrier of the cluster follows.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives at the mbarrier at the same place in block `rank`. It is relaxed, because a release would be a fence of the
// whole GPU. It must not announce that this thread has written something. It may announce that products or the copy
// engine have read something, after the wait for them. The memory model does not order the thread's own plain loads
// before it: use their values first, because hardware needs a loaded value before it can use it.
__device__ __forceinline__ void mbarrier_arrive_cluster(mbarrier* barrier, unsigned rank) {
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.relaxed.cluster.shared::cluster.b64 "
      "_, [there]; }" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}
// Stores 16 bytes in another block, whose mbarrier counts them. Both pointers come from cluster_shared() for the same
// block, and the cluster has more than one. "Data Movement and Conversion Instructions: st.async".
__device__ __forceinline__ void store_async(float* there, float4 value, mbarrier* barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   any_shared_address(there)),
               "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(any_shared_address(barrier))
               : "memory");
}

// bulk_load() to the same place in each block of the cluster that `mask` names by its rank, counted at the mbarrier at
// the same place in each of them.
__device__ __forceinline__ void bulk_load_multicast(void* shared, const void* global, unsigned bytes, mbarrier* barrier,
                                                    unsigned mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
      "%4;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier)), "h"((unsigned short)mask)
      : "memory");
}
// tensor_load() in the same way: the same box to each of those blocks.
__device__ __forceinline__ void tensor_load_multicast(void* shared, const TensorMap& map, int x, int y,
                                                      mbarrier* barrier, unsigned mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
      "%3}], [%4], %5;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(x), "r"(y), "r"(shared_address(barrier)), "h"((unsigned short)mask)
      : "memory");
}
__device__ __forceinline__ void tensor_load_multicast(void* shared, const TensorMap& map, int x, int y, int z,
                                                      mbarrier* barrier, unsigned mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
      "%3, %4}], [%5], %6;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)), "h"((unsigned short)mask)
      : "memory");
}

}  // namespace ptx
#endif
