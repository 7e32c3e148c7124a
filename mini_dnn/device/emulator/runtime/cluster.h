// A cluster: blocks that run at the same time. Each has its own worker, and thereby its own shared memory. They take
// turns: the block with the turn runs until all of its threads wait. Therefore, shared data need no locks, and each run
// of a launch is the same.
#pragma once
#include "scheduler.h"

#include "../include/emulator/cluster_interface.h"

namespace emulator {

constexpr unsigned MAX_CLUSTER = 8;

// A block of a cluster, in addition to what its worker holds.
struct Member {
  Worker* worker;
  // One variable of the kernel library in this worker's memory: two of them give the distance between workers
  char* anchor;
  char* dynamic_shared;
  OwnMemory shared;
  uint3 block;  // blockIdx
  bool begun, ended;
  Queue waiting;                    // at the cluster's barrier
  unsigned arrivals[MAX_THREADS];   // of each thread, so far
  unsigned completed[MAX_THREADS];  // the phases that it has waited for
};

// What its workers wait with is in cluster.cpp: the headers of the C++ library for that are large.
struct Cluster {
  unsigned size;
  Member members[MAX_CLUSTER];
  // The cluster's barrier. A thread's k-th arrival is for phase k, starting at 1.
  unsigned phase, arrived, alive;  // complete phases; threads that have arrived for the next; living threads
  bool released;                   // one of them with release semantics
  unsigned turn, gathered;         // whose turn it is; workers that have joined this launch
  bool lacking;                    // one of them has no room for stacks
  bool failed, over;               // a block has ended the launch; there are no more blocks
};

Cluster* new_cluster();  // exists as long as the process
Cluster& the_cluster();  // of this thread's block; without clusters, it contains only that block
Member& member_of(Worker& worker);

// Where `p`, which is in the memory of `from`, would be in that of `to`.
inline char* translated(const void* p, const Member& from, const Member& to) {
  return const_cast<char*>(static_cast<const char*>(p)) + (to.anchor - from.anchor);
}

// Calls visit(rank) for each block of this cluster that a mask names.
template <class Visit>
void each_block(unsigned mask, const char* what, Site site, Visit visit) {
  const unsigned size = the_cluster().size;
  if (!mask || mask >> size)
    fail("%s (%s:%u): mask 0x%x names blocks of a cluster that has %u", what, site.file_name(), site.line(), mask,
         size);
  for (unsigned rank = 0; rank < size; rank++)
    if (mask >> rank & 1) visit(rank);
}

// Runs blocks of one cluster after the other, as a member, until there are none left or one fails. `next` provides the
// number of the next cluster, or returns false.
struct Clusters {
  unsigned grid[3], cluster[3];  // in blocks
  unsigned shared_bytes;
  bool (*next)(uint64_t& cluster);
};
// Waits for all members of a cluster. Returns false if one of them has no room for stacks.
bool gather(Worker& worker, bool has_stacks, unsigned shared_bytes);
void run_clusters(Worker& worker, const Clusters& clusters);
void end_cluster(Worker& worker);  // a fault has ended a block

}  // namespace emulator
