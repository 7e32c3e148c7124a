// What the twins of a cluster's functions (ptx_cluster.h) call in the runtime library.
//
// The blocks of a cluster have a worker each, and so shared memory of their own; one of them runs at a time, until all
// its threads wait. A pointer into another block's shared memory is an ordinary pointer.
#pragma once
#include "async_interface.h"

#pragma GCC visibility push(default)
namespace emulator {

unsigned cluster_rank();
void cluster_arrive(bool relaxed, Site site);
void cluster_wait(const char* name, Site site);

// The same place in the shared memory of block `rank`.
void* cluster_address(const void* p, unsigned rank, const char* what, Site site);

// An arrival at an mbarrier that may lie in another block's shared memory.
void barrier_arrive_anywhere(void* barrier, Site site);
// 16 bytes for another block: they land as copies do, at a wait for the mbarrier there that counts them.
void store_async(void* there, const void* value, void* barrier, Site site);
// The same bulk load for each block that the mask names, to the same place and counted at the same mbarrier of each.
void bulk_load_multicast(void* shared, const void* global, unsigned bytes, void* barrier, unsigned mask, Site site);
void tensor_load_multicast(void* shared, const TensorMap& map, BoxPlace at, void* barrier, unsigned mask, Site site);

#ifdef EMULATOR_CHECKED
void note_barriers_published();  // fence_mbarrier_init
#else
inline void note_barriers_published() {}
#endif

}  // namespace emulator
#pragma GCC visibility pop
