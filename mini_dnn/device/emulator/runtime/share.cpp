#include "share.h"

#include <algorithm>
#include <cstring>

#include "checks.h"
#include "turns.h"

namespace emulator {

namespace {

char* dynamic_shared(const Launch& l) {
  return l.module->dynamic_shared && l.shared_bytes ? l.module->dynamic_shared() : nullptr;
}

// Calls run(). A signal in a kernel may end that in the middle, so what it uses has to exist outside of it.
template <class Run>
void run_until_fault(Worker& w, Run run) {
  if (sigsetjmp(w.after_fault, 1) == 0) return run();
  if (this_worker != &w) w.failure = this_worker->failure;
  this_worker = &w;
  if (w.cluster && w.cluster != w.alone) end_cluster(w);
}

// Runs blocks until there are none left, or until one fails here or elsewhere.
void run_blocks(Share& share, Turns& turns) {
  const Launch& l = share.launch;
  char* shared = dynamic_shared(l);
  const uint64_t blocks = check_block_count(block_count(l));
  for (;;) {
    while (turns.is_full() && !share.stopped)
      if (!turns.go_on()) return;
    const uint64_t first = share.next_block.fetch_add(share.chunk);
    if (first >= blocks) break;
    for (uint64_t next = first; next < std::min(first + share.chunk, blocks); next++) {
      if (share.stopped) return;
      const uint64_t i = check_block_order(next);
      if (shared) memset(shared, 0xff, l.shared_bytes);  // NaN shows what a block forgets to write
      if (!turns.run(
              {unsigned(i % l.grid[0]), unsigned(i / l.grid[0] % l.grid[1]), unsigned(i / l.grid[0] / l.grid[1])}))
        return;
    }
  }
  while (turns.waits() && !share.stopped)
    if (!turns.go_on()) return;
}

bool next_cluster(uint64_t& number) {
  Share& share = the_share();
  const Launch& l = share.launch;
  const uint64_t next = share.next_block.fetch_add(1);
  if (next >= check_block_count(group_count(l)) || share.stopped) return false;
  number = check_block_order(next);
  return true;
}

}  // namespace

void join_cluster(Share& share, Worker& w, int index) {
  const Launch& l = share.launch;
  const unsigned size = cluster_size(l);
  w.cluster = size > 1 ? share.clusters[index / size] : nullptr;
  w.rank = index % size;
  if (!w.cluster) return;
  Member& m = member_of(w);
  m.worker = &w;
  m.anchor = l.module->anchor();
  m.dynamic_shared = dynamic_shared(l);
  m.shared = own_memory(reinterpret_cast<const void*>(l.kernel->run));
}

void run_all(Share& share, Worker& w) {
  const Launch& l = share.launch;
  if (!w.cluster) {
    l.module->anchor();  // from now on this thread has its own memory for the library
    Turns turns(w, own_memory(reinterpret_cast<const void*>(l.kernel->run)));
    return run_until_fault(w, [&] { run_blocks(share, turns); });
  }
  Clusters all{{}, {}, l.shared_bytes, next_cluster};
  memcpy(all.grid, l.grid, sizeof l.grid);
  memcpy(all.cluster, l.cluster, sizeof l.cluster);
  run_until_fault(w, [&] { run_clusters(w, all); });
}

}  // namespace emulator
