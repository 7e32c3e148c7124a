// mbarriers: phases of arrivals and of the bytes of copies, see include/emulator/async_interface.h.
#include "async.h"
#include "checks.h"
#include "cluster.h"

#define CALL __builtin_return_address(0)

namespace emulator {

namespace {

constexpr unsigned MOST_ARRIVALS = (1 << 20) - 1;  // PTX ISA, mbarrier.init

Barrier* barrier_of(Worker& w, void* address) {
  if (!w.async) return nullptr;
  for (Barrier& barrier : w.async->barriers)
    if (barrier.address == address) return &barrier;
  return nullptr;
}

// The check comes first, because other threads may run during it, and start copies or initialise mbarriers.
Barrier& find_barrier(void* address, const char* what, Site site, const void* call) {
  check_barrier_used(address, what, call);
  if (Barrier* const found = barrier_of(*this_worker, address)) return *found;
  fail("%s (%s:%u): no thread of the block has initialised this mbarrier", what, site.file_name(), site.line());
}

bool is_complete(const Barrier& b, unsigned parity) { return b.phase % 2 != parity % 2; }

}  // namespace

Barrier& find_barrier_anywhere(void* address, const char* what, Site site, const void* call) {
  check_barrier_used(address, what, call);
  Worker& w = *this_worker;
  if (Barrier* const found = barrier_of(w, address)) return *found;
  for (unsigned i = 0; w.cluster && i < w.cluster->size; i++)
    if (Barrier* const found = barrier_of(*w.cluster->members[i].worker, address)) return *found;
  fail("%s (%s:%u): no thread of the block in which this mbarrier lies has initialised it", what, site.file_name(),
       site.line());
}

void require_same_block(const Barrier& b, const void* p, const char* what, Site site) {
  const Cluster& c = the_cluster();
  for (unsigned rank = 0; rank < c.size; rank++)
    if (c.members[rank].shared.contains(p) && c.members[rank].worker != b.block)
      fail(
          "%s (%s:%u): it writes to block %u of the cluster, and the mbarrier that counts it is in block %u; both must "
          "be in one block: pass the same rank to cluster_shared() for both",
          what, site.file_name(), site.line(), rank, b.block->rank);
}

void settle(Barrier& b, bool wanted) {
  if (b.pending || b.copied_bytes() != b.expected_bytes || !(wanted || b.copies.empty())) return;
  for (const Copy& copy : b.copies) land(copy);
  b.copies.clear();
  b.expected_bytes = 0;
  b.pending = b.arrivals;
  b.phase++;
  b.block->idle = 0;
  check_phase_completed(b);
  auto goes_on = [&](const Barrier::Waiter& waiter) {
    const bool ready = is_complete(b, waiter.parity);
    if (ready) b.block->ready.push(waiter.fiber), check_waited(b, waiter.fiber->linear);
    return ready;
  };
  std::erase_if(b.waiters, goes_on);
}

namespace {

void arrive(Barrier& b, unsigned expected_bytes, Site site) {
  if (!b.pending) settle(b, true);  // on a GPU that phase would be complete by now
  if (!b.pending)
    fail(
        "mbarrier_arrive (%s:%u): all %u arrivals of this phase have come, but its copies bring %llu bytes instead of "
        "the expected %llu",
        site.file_name(), site.line(), b.arrivals, (unsigned long long)b.copied_bytes(),
        (unsigned long long)b.expected_bytes);
  b.pending--;
  b.expected_bytes += expected_bytes;
  check_arrived(b);
  settle(b, !b.waiters.empty());
}

}  // namespace

void barrier_init(void* address, unsigned arrivals, Site site) {
  require_multiple(reinterpret_cast<size_t>(address), 8, "address of an mbarrier", site);
  if (!arrivals || arrivals > MOST_ARRIVALS)
    fail("mbarrier_init (%s:%u): %u arrivals; a phase has at least 1 and at most %u", site.file_name(), site.line(),
         arrivals, MOST_ARRIVALS);
  check_own_shared(address, "mbarrier_init", site);
  check_barrier_made(address, CALL);
  auto& barriers = the_async().barriers;
  std::erase_if(barriers, [&](const Barrier& b) { return b.address == address; });
  barriers.push_back({address, arrivals, arrivals, 0, 0, {}, {}, this_worker});
  note_barrier_made(barriers.back());
}

void barrier_arrive(void* address, unsigned expected_bytes, Site site) {
  count_event("mbarrier_arrive", CALL, address, 0);
  arrive(find_barrier(address, "mbarrier_arrive", site, CALL), expected_bytes, site);
}

void barrier_arrive_anywhere(void* address, Site site) {
  arrive(find_barrier_anywhere(address, "mbarrier_arrive_cluster", site, CALL), 0, site);
}

bool barrier_try_wait(void* address, unsigned parity, Site site) {
  Barrier& b = find_barrier(address, "mbarrier_try_wait", site, CALL);
  if (!is_complete(b, parity)) settle(b, true);
  if (is_complete(b, parity)) return check_waited(b, linear_thread), true;
  yield();
  return false;
}

void barrier_wait(void* address, unsigned parity, Site site) {
  count_event("mbarrier_wait", CALL, address, parity);
  Barrier& b = find_barrier(address, "mbarrier_wait", site, CALL);
  if (!is_complete(b, parity)) settle(b, true);
  if (is_complete(b, parity)) return check_waited(b, linear_thread);
  Worker& w = *this_worker;
  w.current->wait = {"mbarrier_wait", site, 0};
  b.waiters.push_back({w.current, parity});
  wait_for_others(w);
}

}  // namespace emulator
