// Functions of the runtime library for the emulated functions of a cluster (ptx_cluster.h).
//
// Each block of a cluster has a worker with its own shared memory. One block runs at a time, until all of its threads
// wait. A pointer to another block's shared memory is an ordinary pointer.
#pragma once
#include "async_interface.h"

#pragma GCC visibility push(default)
namespace emulator {

unsigned cluster_rank();
void cluster_arrive(bool relaxed, Site site);
void cluster_wait(const char* name, Site site);

// The same place in the shared memory of block `rank`.
void* cluster_address(const void* p, unsigned rank, const char* what, Site site);

// An arrival at an mbarrier that may be in another block's shared memory.
void barrier_arrive_anywhere(void* barrier, Site site);
// 16 bytes for another block. Like copies, they arrive at a wait for the mbarrier there that counts them.
void store_async(void* there, const void* value, void* barrier, Site site);
// The same bulk load for each block in the mask, to the same place, counted at the same mbarrier of each block.
void bulk_load_multicast(void* shared, const void* global, unsigned bytes, void* barrier, unsigned mask, Site site);
void tensor_load_multicast(void* shared, const TensorMap& map, BoxPlace at, void* barrier, unsigned mask, Site site);

#ifdef EMULATOR_CHECKED
void note_barriers_published();  // fence_mbarrier_init
#else
inline void note_barriers_published() {}
#endif

}  // namespace emulator
#pragma GCC visibility pop
