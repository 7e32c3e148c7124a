// Workers that exist as long as the process (new threads would cost milliseconds per launch), and the launch.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "checks.h"
#include "counts.h"
#include "preempt.h"
#include "share.h"

namespace emulator {

namespace {

// Clusters that run at once if they wait for each other: as many as 128 multiprocessors run, with two blocks each.
uint64_t resident(const Launch& l) { return CHECKED ? 1 : 256 / cluster_size(l); }

struct Pool {
  std::mutex mutex;
  std::condition_variable done, idle;
  std::vector<pthread_t> threads;
  std::deque<std::condition_variable> start;  // of each thread
  unsigned generation = 0;                    // launches so far
  int wanted = 0, running = 0, roomless = 0;  // workers of a launch; those without room for stacks
  bool busy = false;                          // from emulator_start to the emulator_wait that sees the end
  Share share;
  Failure failure;
  std::chrono::steady_clock::time_point began;
  pid_t process = getpid();
};

void run_share(Pool& pool, Worker& w, int index) {
  const Launch& l = pool.share.launch;
  w.run = l.kernel->run;
  w.arguments = l.arguments;
  w.total = l.block[0] * l.block[1] * l.block[2];
  w.failure.kind = FailureKind::none;
  w.failure.pc = 0;
  w.abandoned = false;
  blockDim = {l.block[0], l.block[1], l.block[2]};
  gridDim = {l.grid[0], l.grid[1], l.grid[2]};
  join_cluster(pool.share, w, index);
  const bool has_stacks = reserve_stacks(w, index < int(l.workers * cluster_size(l)));
  if (!(w.cluster ? gather(w, has_stacks, l.shared_bytes) : has_stacks)) {
    std::lock_guard lock(pool.mutex);  // address space is limited; others run its blocks
    if (++pool.roomless == pool.wanted)
      pool.failure = {FailureKind::no_memory, {}, {}, 0, 0, "no memory for the stacks of a block"};
    return;
  }
  if (!w.cluster) check_launch_started(w, l.shared_bytes);
  count_launch_started(w, *l.module, l.shared_bytes);
  check_numbers(true);
  run_all(pool.share, w);
  check_numbers(false);
  check_launch_ended();
  count_launch_ended(w);
  release_fibers(w);  // the launch may have ended in the middle of a block
  if (w.abandoned) return;
  if (stack_overflowed(w, nullptr)) note_overflow(w.failure);
  if (w.failure.kind == FailureKind::none) return;
  std::lock_guard lock(pool.mutex);
  if (pool.failure.kind == FailureKind::none) pool.failure = w.failure;
  pool.share.stopped = true;
}

// A signal that ends a launch may arrive when the launch and its handlers are already gone. A worker without a launch
// blocks it, and the handlers of the next launch know that it means nothing.
void take_cancelling(bool taken) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGSEGV);
  pthread_sigmask(taken ? SIG_UNBLOCK : SIG_BLOCK, &signals, nullptr);
}

void work(Pool& pool, int index) {
  this_worker = new Worker;  // exists as long as the process
  watch_faults();
  take_cancelling(false);
  unsigned seen = 0;
  std::unique_lock lock(pool.mutex);
  for (;;) {
    pool.start[index].wait(lock, [&] { return pool.generation != seen && index < pool.wanted; });
    seen = pool.generation;
    lock.unlock();
    take_cancelling(true);
    run_share(pool, *this_worker, index);
    take_cancelling(false);
    lock.lock();
    if (--pool.running == 0) pool.done.notify_all();
  }
}

// Never destroyed: its threads use it until the process ends. A forked child has no threads, so it starts anew.
Pool& the_pool() {
  static std::mutex mutex;
  static Pool* pool = nullptr;
  std::lock_guard lock(mutex);
  if (!pool || pool->process != getpid()) pool = new Pool;
  return *pool;
}

// Starts threads up to the required number, or as many as the system allows.
void grow(Pool& pool, int workers) {
  sigset_t all, before;  // signals of the process (Ctrl-C) are for the host's threads
  sigfillset(&all);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGURG}) sigdelset(&all, signal);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    while (int(pool.threads.size()) < workers) {
      if (pool.start.size() == pool.threads.size()) pool.start.emplace_back();
      std::thread thread(work, std::ref(pool), int(pool.threads.size()));
      pool.threads.push_back(thread.native_handle());
      thread.detach();
    }
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void form_clusters(std::vector<Cluster*>& clusters, unsigned first, unsigned last, unsigned size) {
  if (size == 1) return;
  for (unsigned i = first; i < last; i++) {
    if (i == clusters.size()) clusters.push_back(new_cluster());
    Cluster* const c = clusters[i];
    c->size = size;
    c->gathered = 0;
    c->turn = MAX_CLUSTER;  // nobody's, until all have joined
    c->lacking = c->failed = c->over = false;
  }
}

// From now on, up to `most` blocks or clusters run at once, or as many as the system has threads for.
void admit(Pool& pool, uint64_t most) {
  const unsigned size = cluster_size(pool.share.launch);
  grow(pool, int(most) * size);
  const int wanted = int(std::min<uint64_t>(most, pool.threads.size() / size)) * size;
  form_clusters(pool.share.clusters, pool.wanted / size, wanted / size, size);
  pool.running += wanted - pool.wanted;
  for (int i = pool.wanted; i < wanted; i++) pool.start[i].notify_one();
  pool.wanted = wanted;
}

// Whether it ends within that time. Threads of a long launch may be waiting: now and then, others of their blocks run.
bool wait_for_end(Pool& pool, std::unique_lock<std::mutex>& lock, double seconds) {
  using namespace std::chrono;
  constexpr auto PATIENCE = milliseconds(50);
  constexpr auto TURN = microseconds(500);
  const auto is_over = [&] { return pool.running == 0; };
  const auto end = steady_clock::now() + duration_cast<steady_clock::duration>(duration<double>(seconds));
  const auto patience = PREEMPTS ? std::min(end, pool.began + PATIENCE) : end;
  if (pool.done.wait_until(lock, patience, is_over)) return true;
  while (steady_clock::now() < end) {
    if (pool.done.wait_for(lock, TURN, is_over)) return true;
    for (int i = 0; i < pool.wanted; i++) pthread_kill(pool.threads[i], SIGURG);
  }
  return false;
}

}  // namespace

Share& the_share() { return the_pool().share; }

}  // namespace emulator

using namespace emulator;

#pragma GCC visibility push(default)
extern "C" {

// Launches run one at a time: waits for the launch of another thread of the host.
void emulator_start(Launch* launch) {
  Pool& pool = the_pool();
  std::unique_lock lock(pool.mutex);
  pool.idle.wait(lock, [&] { return !pool.busy; });
  pool.busy = true;
  launch->started = 1;
  start_heap();
  install_fault_handlers();
  install_preemption();
  watch_kernel(reinterpret_cast<const void*>(launch->kernel->run));
  pool.share.launch = *launch;
  const uint64_t blocks = group_count(*launch);
  pool.share.clusters.reserve(std::max<uint64_t>(launch->workers, resident(*launch)));  // then none moves
  // Small chunks balance the workers; single blocks would be slow if blocks are short.
  pool.share.chunk = std::clamp<uint64_t>(blocks / (uint64_t(launch->workers) * 64), 1, 64);
  pool.share.next_block = 0;
  pool.began = std::chrono::steady_clock::now();
  pool.share.stopped = pool.share.waits = false;
  pool.roomless = pool.wanted = pool.running = 0;
  pool.failure.kind = FailureKind::none;
  pool.generation++;
  admit(pool, std::min<uint64_t>(launch->workers, blocks));
  if (pool.wanted == 0) pool.failure = {FailureKind::no_memory, {}, {}, 0, 0, "the system cannot start another thread"};
}

// 1: the launch has ended, and *failure says how; 0: not within that time.
int emulator_wait(double seconds, Failure* failure) {
  Pool& pool = the_pool();
  std::unique_lock lock(pool.mutex);
  const Launch& l = pool.share.launch;
  const uint64_t most = std::min(group_count(l), resident(l)), more = pool.wanted / cluster_size(l) * 8;
  if (pool.share.waits.exchange(false) && pool.running && most * cluster_size(l) > uint64_t(pool.wanted))
    admit(pool, std::min(most, more));
  if (!wait_for_end(pool, lock, seconds)) return 0;
  restore_preemption();
  restore_fault_handlers();
  pool.busy = false;
  pool.idle.notify_one();
  memcpy(failure, &pool.failure, sizeof *failure);
  return 1;
}

// Ends the launch at the next block. A block that does not end (an endless loop) is aborted.
void emulator_cancel() {
  Pool& pool = the_pool();
  pool.share.stopped = true;
  std::unique_lock lock(pool.mutex);
  if (pool.done.wait_for(lock, std::chrono::seconds(1), [&] { return pool.running == 0; })) return;
  for (int i = 0; i < pool.wanted; i++) pthread_kill(pool.threads[i], SIGSEGV);
}
}
#pragma GCC visibility pop
