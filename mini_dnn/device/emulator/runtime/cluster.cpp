// Which block of a cluster runs when, and the cluster's barrier: see include/emulator/cluster_interface.h.
#include "cluster.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "async.h"

namespace emulator {

namespace {

// Every cluster is one: see new_cluster().
struct Waiting : Cluster {
  std::mutex mutex;
  std::condition_variable changed[MAX_CLUSTER];  // by block: it has the turn, or the cluster has ended
};

Waiting& waiting(Cluster& c) { return static_cast<Waiting&>(c); }

bool can_run(const Member& m) {
  const Worker& w = *m.worker;
  return !m.ended && (!m.begun || w.ready.first || w.started < w.total);
}

// Gives the turn to the next block that can continue, if there is one. The caller holds the mutex.
bool pass_turn(Cluster& c, unsigned from) {
  for (unsigned i = 0; i + 1 < c.size; i++) {
    const unsigned rank = (from + 1 + check_turn(i, c.size - 1)) % c.size;
    if (!can_run(c.members[rank])) continue;
    c.turn = rank;
    waiting(c).changed[rank].notify_one();
    return true;
  }
  return false;
}

void notify_all(Cluster& c) {
  for (unsigned i = 0; i < c.size; i++) waiting(c).changed[i].notify_one();
}

// Waits for the turn. Returns false if there are no more turns.
bool wait_for_turn(Cluster& c, unsigned rank) {
  std::unique_lock lock(waiting(c).mutex);
  waiting(c).changed[rank].wait(lock, [&] { return c.failed || c.over || c.turn == rank; });
  return !c.failed && !c.over;
}

// In the middle of a block: returns when it has the turn again. Signals do not affect a thread that holds the mutex.
void wait_in_kernel(Worker& w) {
  if (!wait_for_turn(*w.cluster, w.rank)) {
    w.abandoned = true;
    Context abandoned;
    switch_context(abandoned, w.host);
    __builtin_unreachable();
  }
  check_turn_taken(w);
  w.in_kernel = true;
}

bool pass_turn_in_kernel(Worker& w) {
  w.in_kernel = false;
  std::unique_lock lock(waiting(*w.cluster).mutex);
  if (pass_turn(*w.cluster, w.rank)) return true;
  lock.unlock();
  w.in_kernel = true;
  return false;
}

uint3 block_index(const Clusters& all, uint64_t cluster, unsigned rank) {
  unsigned index[3];
  for (int i = 0; i < 3; i++) {
    const unsigned count = all.grid[i] / all.cluster[i];
    index[i] = cluster % count * all.cluster[i] + rank % all.cluster[i];
    cluster /= count;
    rank /= all.cluster[i];
  }
  return {index[0], index[1], index[2]};
}

// Makes all blocks of a cluster ready to begin and gives the turn to one of them, or says that there are no more.
void begin(Cluster& c, const Clusters& all) {
  uint64_t number;
  if (!all.next(number)) {
    c.over = true;
    return notify_all(c);
  }
  c.phase = c.arrived = c.alive = 0;
  c.released = false;
  for (unsigned i = 0; i < c.size; i++) {
    Member& m = c.members[i];
    m.block = block_index(all, number, i);
    m.begun = m.ended = false;
    m.waiting.first = nullptr;
    std::fill_n(m.arrivals, m.worker->total, 0);
    std::fill_n(m.completed, m.worker->total, 0);
    c.alive += m.worker->total;
    async_block_started(*m.worker);
    if (m.dynamic_shared) memset(m.dynamic_shared, 0xff, all.shared_bytes);  // as in pool.cpp
  }
  check_cluster_started(c);
  c.turn = check_turn(0, c.size);
  waiting(c).changed[c.turn].notify_one();
}

// A block has ended, and the turn moves on. Returns false if no block can continue and not all have ended.
bool go_on(Cluster& c, unsigned rank, const Clusters& all) {
  std::lock_guard lock(waiting(c).mutex);
  c.members[rank].ended = true;
  if (pass_turn(c, rank)) return true;
  for (unsigned i = 0; i < c.size; i++)
    if (!c.members[i].ended) return false;
  begin(c, all);
  return true;
}

// Completes the phase of the cluster's barrier at which all living threads have arrived.
void settle(Cluster& c) {
  if (!c.arrived || c.arrived != c.alive) return;
  check_steps(c.arrived);
  check_cluster_barrier(c.released);
  c.phase++;
  c.arrived = 0;
  c.released = false;
  for (unsigned i = 0; i < c.size; i++) c.members[i].worker->ready.append(c.members[i].waiting);
}

}  // namespace

Cluster* new_cluster() { return new Waiting(); }

Cluster& the_cluster() {
  Worker& w = *this_worker;
  if (w.cluster) return *w.cluster;
  if (!w.alone) w.alone = new_cluster();
  Cluster& c = *(w.cluster = w.alone);
  w.rank = 0;
  c.size = 1;
  c.phase = c.arrived = 0;
  c.alive = w.alive;
  c.released = false;
  Member& m = c.members[0];
  m.worker = &w;
  m.block = blockIdx;
  m.waiting.first = nullptr;
  std::fill_n(m.arrivals, w.total, 0);
  std::fill_n(m.completed, w.total, 0);
  return c;
}

Member& member_of(Worker& w) { return w.cluster->members[w.rank]; }

bool gather(Worker& w, bool has_stacks, unsigned shared_bytes) {
  Cluster& c = *w.cluster;
  std::unique_lock lock(waiting(c).mutex);
  c.lacking |= !has_stacks;
  if (has_stacks) check_launch_started(w, shared_bytes);
  c.gathered++;
  notify_all(c);
  waiting(c).changed[w.rank].wait(lock, [&] { return c.gathered == c.size; });
  return !c.lacking;
}

void run_clusters(Worker& w, const Clusters& all) {
  Cluster& c = *w.cluster;
  Member& m = member_of(w);
  if (w.rank == 0) {
    std::lock_guard lock(waiting(c).mutex);
    begin(c, all);
  }
  while (wait_for_turn(c, w.rank)) {
    check_turn_taken(w);
    m.begun = true;
    blockIdx = m.block;
    w.in_kernel = true;
    run_block(w);
    w.in_kernel = false;
    check_block_ended(w);
    if (w.failure.kind == FailureKind::none && !w.abandoned && !go_on(c, w.rank, all)) {
      w.failure.kind = FailureKind::deadlock;
      note_place(w.failure);
      tell_threads(w);
    }
    if (w.failure.kind != FailureKind::none || w.abandoned) return end_cluster(w);
  }
}

void end_cluster(Worker& w) {
  Cluster& c = *w.cluster;
  std::lock_guard lock(waiting(c).mutex);
  c.failed = true;
  notify_all(c);
}

bool others_have_run(Worker& w) {
  if (w.cluster->size == 1 || !pass_turn_in_kernel(w)) return false;
  wait_in_kernel(w);
  return true;
}

void thread_left_cluster(Worker& w, unsigned linear) {
  Cluster& c = *w.cluster;
  c.alive--;
  if (member_of(w).arrivals[linear] == c.phase + 1) c.arrived--;
  settle(c);
}

unsigned cluster_rank() {
  the_cluster();
  return this_worker->rank;
}

void cluster_arrive(bool relaxed, Site site) {
  Cluster& c = the_cluster();
  Member& m = member_of(*this_worker);
  if (m.arrivals[linear_thread] != m.completed[linear_thread])
    fail("cluster_arrive (%s:%u): this thread has already arrived, and has not waited since", site.file_name(),
         site.line());
  m.arrivals[linear_thread]++;
  c.arrived++;
  c.released |= !relaxed;
  settle(c);
}

void cluster_wait(const char* name, Site site) {
  Cluster& c = the_cluster();
  Worker& w = *this_worker;
  Member& m = member_of(w);
  if (m.arrivals[linear_thread] == m.completed[linear_thread])
    fail("%s (%s:%u): this thread has not arrived; call cluster_arrive first", name, site.file_name(), site.line());
  const unsigned phase = ++m.completed[linear_thread];
  if (c.phase >= phase) return;
  w.current->wait = {name, site, 0};
  m.waiting.push(w.current);
  wait_for_others(w);
}

void* cluster_address(const void* p, unsigned rank, const char* what, Site site) {
  Cluster& c = the_cluster();
  if (rank >= c.size)
    fail("%s (%s:%u): there is no block %u in a cluster of %u", what, site.file_name(), site.line(), rank, c.size);
  check_own_shared(p, what, site);
  return translated(p, member_of(*this_worker), c.members[rank]);
}

}  // namespace emulator
