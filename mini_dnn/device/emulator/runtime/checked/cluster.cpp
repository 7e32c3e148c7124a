// Blocks of a cluster in checked mode: which of their accesses are ordered, and accesses to a block that may have
// ended.
//
// A cluster barrier orders memory if an arrival has release semantics. Then all blocks begin new epochs, and everything
// older is ordered. After any other cluster barrier, a block may at least return. See clocks.h for mbarriers.
#include "../async.h"

#include <algorithm>

#include "access.h"
#include "clocks.h"
#include "flights.h"

namespace emulator {

namespace {

// An access to another block's shared memory.
struct Far {
  uint32_t epoch = 0;  // 0: none
  Party who;
  const char* p;
  size_t bytes;
};

struct Made {  // an mbarrier
  void* address;
  unsigned thread;
  bool fenced, published;  // by fence_mbarrier_init(), and by a barrier of the cluster
};

struct {
  Far last[MAX_CLUSTER][MAX_CLUSTER];  // [a][b]: in a's shared memory, by b
  uint32_t met;                        // everything older is ordered before a block's end
  std::vector<Made> made[MAX_CLUSTER];
} the_blocks;

unsigned size() { return this_worker->cluster->size; }

void note(const char* what, const char* state, const char* p, size_t bytes, const Party& who) {
  note_finding(FindingKind::cluster, what, state, p, bytes, who);
}

Made* find_made(void* address) {
  for (unsigned i = 0; i < size(); i++)
    for (Made& made : the_blocks.made[i])
      if (made.address == address) return &made;
  return nullptr;
}

// From now on others may arrive at it, and the mbarrier_init is not a write that they race with.
void publish(Made& made) {
  made.published = true;
  const Region* r = find_region(static_cast<const char*>(made.address));
  if (!r || !r->cells) return;
  const size_t first = (static_cast<const char*>(made.address) - r->start) >> r->shift;
  for (size_t i = 0; i < sizeof(uint64_t) >> r->shift; i++) r->cells[first + i].write_manner = Manner::atomic;
}

}  // namespace

int shared_of(const char* p) {
  const Check& c = the_check;
  if (p >= c.shared_start && p < c.shared_end) return c.rank;
  for (unsigned i = 0; c.many && i < size(); i++) {
    const BlockCheck& b = block_check(i);
    if (p >= b.shared_start && p < b.shared_end) return i;
  }
  return -1;
}

void check_cluster_started(Cluster& cluster) {
  Check& c = the_check;
  c.cluster_epoch = c.ordered_epoch = c.clock + 1;
  c.ranks.clear();
  begin_ahead();
  the_blocks = {};
  for (unsigned i = 0; i < cluster.size; i++) {
    BlockCheck& b = block_check(i);
    b.block = linear(cluster.members[i].block);
    b.cluster_epoch = c.cluster_epoch;
    b.exited = 0;
    b.epoch = new_epoch(i);
    order_block_started(b.order);
    clocks_block_started(*b.clocks);
  }
}

void check_turn_taken(Worker& w) {
  Check& c = the_check;
  if (w.rank == c.rank) return;
  c.aside[c.rank] = c;
  static_cast<BlockCheck&>(c) = c.aside[w.rank];
  mark_far_regions();
}

void check_cluster_barrier(bool releases) {
  Check& c = the_check;
  give_up_pending();
  meet_wait_of_cluster();
  if (!c.many) {
    if (releases) begin_epoch(0), clocks_cluster_met(*c.clocks);
    return;
  }
  for (unsigned i = 0; i < size(); i++) {
    if (block_check(i).pending) c.finding = block_check(i).finding, stop(FailureKind::finding);
    for (Made& made : the_blocks.made[i])
      if (!made.published && (releases || made.fenced)) publish(made);
  }
  the_blocks.met = c.clock + 1;
  if (releases) c.ordered_epoch = the_blocks.met;
  for (unsigned i = 0; i < size(); i++) {
    BlockCheck& b = block_check(i);
    const uint32_t epoch = new_epoch(i);
    if (!releases) continue;
    b.epoch = epoch;
    clocks_cluster_met(*b.clocks);
  }
}

void check_own_shared(const void* p, const char* what, Site site) {
  const Check& c = the_check;
  const auto* address = static_cast<const char*>(p);
  if (address < c.shared_start || address >= c.shared_end)
    fail("%s (%s:%u): the pointer is not into this block's own shared memory (__shared__)", what, site.file_name(),
         site.line());
}

void check_not_gone(unsigned rank, const char* p, size_t bytes, const char* what, uint64_t pc) {
  const Check& c = the_check;
  if (rank == c.rank || !this_worker->cluster->members[rank].ended) return;
  note(what, "ended", p, bytes, {0, 0, linear_thread, c.block, pc});
  stop(FailureKind::finding);
}

void note_far(const Region& r, const char* address, size_t bytes, bool write, uint64_t pc) {
  if (copy_starts) return;  // the receiving block waits for it
  const Check& c = the_check;
  check_not_gone(r.rank, address, bytes, write ? "write" : "read", pc);
  the_blocks.last[r.rank][c.rank] = {now(), {write, 0, linear_thread, c.block, pc}, address, bytes};
}

// Nobody may use the block's shared memory any more. What others did there must be ordered before its end.
void check_member_ended(Worker& w) {
  const Check& c = the_check;
  if (w.async && w.async->used && !check_all_landed(w)) {
    w.failure.kind = FailureKind::finding;
    return;
  }
  for (unsigned i = 0; i < size(); i++) {
    const Far& far = the_blocks.last[c.rank][i];
    if (far.epoch < the_blocks.met || !far.epoch || some_know(far.who.thread, far.epoch)) continue;
    note(far.who.write ? "write" : "read", "ended", far.p, far.bytes, far.who);
    w.failure.kind = FailureKind::finding;
    return;
  }
  if (!w.async || !w.async->used) return;
  for (const Barrier& b : w.async->barriers) {
    const BarrierNotes& n = b.notes;
    if (!n.epoch || n.epoch < the_blocks.met || n.waited > n.phase) continue;
    note("mbarrier_arrive_cluster", "ended", static_cast<const char*>(b.address), 8, {0, 0, n.thread, n.block, n.pc});
    w.failure.kind = FailureKind::finding;
    return;
  }
}

void note_barriers_published() {
  note_barrier_fence();
  if (!the_check.many) return;
  for (Made& made : the_blocks.made[the_check.rank])
    if (made.thread == linear_thread) made.fenced = true;
}

// The first use of an mbarrier writes it; all later ones update it.
void check_barrier_made(void* barrier, const void* call) {
  check_access(barrier, 8, true, Manner::plain, call);
  if (!the_check.many) return;
  auto& made = the_blocks.made[the_check.rank];
  std::erase_if(made, [&](const Made& m) { return m.address == barrier; });
  made.push_back({barrier, linear_thread, false, false});
}

void check_barrier_used(void* barrier, const char* what, const void* call) {
  const auto* p = static_cast<const char*>(barrier);
  const int rank = shared_of(p);
  const bool far = the_check.many && rank >= 0 && rank != int(the_check.rank);
  if (far) {
    check_not_gone(rank, p, 8, what, pc_of(call));
    const Made* made = find_made(barrier);
    if (!made || !made->published) {
      note(what, made ? "unpublished" : "missing", p, 8, {0, 0, linear_thread, the_check.block, pc_of(call)});
      stop(FailureKind::finding);
    }
  }
  copy_starts = far;  // note_far_arrival() records an arrival in the mbarrier's notes
  check_access(barrier, 8, false, Manner::atomic, call);
  copy_starts = false;
}

void note_far_arrival(Barrier& b) {
  const Check& c = the_check;
  BarrierNotes& n = b.notes;
  n.thread = linear_thread, n.block = c.block, n.pc = c.last_pc;
  n.phase = b.phase;
  n.epoch = now();
}

}  // namespace emulator
