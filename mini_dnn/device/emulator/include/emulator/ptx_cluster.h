// Emulated wrappers of mini_dnn/ptx_cluster.cuh, which describes each one with its place in the PTX ISA.
#pragma once
#include "cluster_interface.h"
#include "ptx.h"

namespace emulator::ptx {

inline unsigned cluster_rank() { return emulator::cluster_rank(); }
// From mini_dnn/ptx_elect.cuh.
inline bool elect() { return threadIdx.x % 32 == 0; }
EMULATOR_ACCESS void cluster_arrive(Site site = Site::current()) { emulator::cluster_arrive(false, site); }
EMULATOR_ACCESS void cluster_arrive_relaxed(Site site = Site::current()) { emulator::cluster_arrive(true, site); }
EMULATOR_ACCESS void cluster_wait(Site site = Site::current()) { emulator::cluster_wait("cluster_wait", site); }
EMULATOR_ACCESS void cluster_sync(Site site = Site::current()) {
  emulator::cluster_arrive(false, site);
  emulator::cluster_wait("cluster_sync", site);
}

template <class T>
EMULATOR_ACCESS T* cluster_shared(T* p, unsigned rank, Site site = Site::current()) {
  return static_cast<T*>(cluster_address(p, rank, "cluster_shared", site));
}

namespace tensor {

EMULATOR_ACCESS void load_multicast(void* shared, const TensorMap& map, unsigned axes, BoxPlace at, mbarrier* barrier,
                                    unsigned mask, Site site) {
  require_multiple(reinterpret_cast<size_t>(shared), UNIT, "address that tensor_load_multicast writes", site);
  check_map(map, axes, "tensor_load_multicast", site);
  require_multiple(size_t(at.x) * map.itemsize, PART,
                   "distance of tensor_load_multicast's box from the start of its row", site);
  emulator::tensor_load_multicast(shared, map, at, barrier, mask, site);
}

}  // namespace tensor

EMULATOR_ACCESS void mbarrier_arrive_cluster(mbarrier* barrier, unsigned rank, Site site = Site::current()) {
  barrier_arrive_anywhere(cluster_address(barrier, rank, "mbarrier_arrive_cluster", site), site);
}
EMULATOR_ACCESS void store_async(float* there, float4 value, mbarrier* barrier, Site site = Site::current()) {
  require_multiple(reinterpret_cast<size_t>(there), 16, "address that store_async writes", site);
  emulator::store_async(there, &value, barrier, site);
}
EMULATOR_ACCESS void bulk_load_multicast(void* shared, const void* global, unsigned bytes, mbarrier* barrier,
                                         unsigned mask, Site site = Site::current()) {
  require_multiple(reinterpret_cast<size_t>(shared), 16, "address that bulk_load_multicast writes", site);
  require_multiple(reinterpret_cast<size_t>(global), 16, "address that bulk_load_multicast reads", site);
  require_multiple(bytes, 16, "size of bulk_load_multicast", site);
  emulator::bulk_load_multicast(shared, global, bytes, barrier, mask, site);
}
EMULATOR_ACCESS void tensor_load_multicast(void* shared, const TensorMap& map, int x, int y, mbarrier* barrier,
                                           unsigned mask, Site site = Site::current()) {
  tensor::load_multicast(shared, map, 2, {x, y, 0}, barrier, mask, site);
}
EMULATOR_ACCESS void tensor_load_multicast(void* shared, const TensorMap& map, int x, int y, int z, mbarrier* barrier,
                                           unsigned mask, Site site = Site::current()) {
  tensor::load_multicast(shared, map, 3, {x, y, z}, barrier, mask, site);
}
inline void fence_mbarrier_init() { note_barriers_published(); }

}  // namespace emulator::ptx
