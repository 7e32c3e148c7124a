// Copies of boxes of a matrix by the copy engine (sm_90): part of mini_dnn/ptx.cuh, which includes it.
#pragma once

namespace ptx {

// The host's description of a tensor: address, shape, strides, the box that one copy moves, and the swizzle. A kernel
// takes it as `const __grid_constant__ ptx::TensorMap`, and a plan passes a TensorMap(...).
struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};

#ifdef PTX_BULK
// ---- "Data Movement and Conversion Instructions: cp.async.bulk.tensor". One thread starts a copy. x, y and z are the
// coordinates of the box's first element; x is along the innermost axis, and is a multiple of 16 bytes. In shared
// memory, the box has no gaps, and starts at a multiple of 128 bytes (1024 with swizzle). Elements outside of the
// tensor are loaded as zeros, and are not stored. A box that is loaded may begin at negative coordinates; one that is
// stored may not.

// Global to shared memory. `barrier` counts all bytes of the box, as for bulk_load.
__device__ __forceinline__ void tensor_load(void* shared, const TensorMap& map, int x, int y, mbarrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared_address(shared)),
      "l"(&map), "r"(x), "r"(y), "r"(shared_address(barrier))
      : "memory");
}
__device__ __forceinline__ void tensor_load(void* shared, const TensorMap& map, int x, int y, int z,
                                            mbarrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(shared_address(shared)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
      : "memory");
}
// Shared to global memory: like bulk_store, with the same fence before it, and in the same groups.
__device__ __forceinline__ void tensor_store(const TensorMap& map, int x, int y, const void* shared) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x),
               "r"(y), "r"(shared_address(shared))
               : "memory");
}
__device__ __forceinline__ void tensor_store(const TensorMap& map, int x, int y, int z, const void* shared) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map), "r"(x),
               "r"(y), "r"(z), "r"(shared_address(shared))
               : "memory");
}
// Prefetches the map itself, before the first copy needs it.
__device__ __forceinline__ void tensor_prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
#endif

}  // namespace ptx
