// The blocks of a launch, of which each worker takes some until there are none left.
#pragma once
#include <atomic>
#include <vector>

#include "cluster.h"

namespace emulator {

// runtime.py has the same fields.
struct Launch {
  const Module* module;
  const Kernel* kernel;
  void* const* arguments;
  unsigned grid[3], block[3], cluster[3];
  unsigned shared_bytes;
  int workers;
  int started;  // set by emulator_start
};

// What the workers of a launch share. The mutex and the condition variables are in pool.cpp: their headers are large.
struct Share {
  Launch launch;
  std::vector<Cluster*> clusters;    // those that run at the same time
  std::atomic<uint64_t> next_block;  // or the next cluster
  std::atomic<bool> stopped;
  std::atomic<bool> waits;  // a cluster may be waiting for others
  uint64_t chunk;
};

inline uint64_t block_count(const Launch& l) { return uint64_t(l.grid[0]) * l.grid[1] * l.grid[2]; }
inline unsigned cluster_size(const Launch& l) { return l.cluster[0] * l.cluster[1] * l.cluster[2]; }
inline uint64_t group_count(const Launch& l) { return block_count(l) / cluster_size(l); }  // clusters, or blocks

Share& the_share();  // of the launch that is running
void join_cluster(Share& share, Worker& worker, int index);
void run_all(Share& share, Worker& worker);  // until there are no blocks left, or until one fails here or elsewhere

}  // namespace emulator
