// Copies that land when they are waited for, and mbarriers: include/emulator/async_interface.h says what each means.
#include "async.h"
#include "cluster.h"

#include <algorithm>

#define CALL __builtin_return_address(0)

namespace emulator {

const char* copy_name(CopyKind kind, bool multicast) {
  constexpr const char* names[] = {"cp_async",     "bulk_load",    "bulk_store", "tensor_load",
                                   "tensor_store", "wgmma_m64k16", "store_async"};
  if (multicast) return kind == CopyKind::tensor_load ? "tensor_load_multicast" : "bulk_load_multicast";
  return names[int(kind)];
}

Async& the_async() {
  Worker& w = *this_worker;
  if (!w.async) w.async = new Async;  // for the life of the process, as the worker itself
  w.async->used = true;
  return *w.async;
}

namespace {

void land(const Copy& copy) {
  if (copy.kind == CopyKind::store_async)
    memcpy(copy.to, copy.held.data(), copy.bytes);
  else
    copy.each_piece([](const Piece& p) {
      memset(p.shared, 0, p.first);
      memcpy(p.shared + p.first, p.global + p.first, p.last - p.first);
      memset(p.shared + p.last, 0, p.bytes - p.last);
    });
  check_copy_landed(copy);
}

void hold(Copy& copy) {
  if (!copy.held.empty()) return;
  copy.each_piece([&](const Piece& p) { copy.held.insert(copy.held.end(), p.shared, p.shared + p.bytes); });
  check_copy_landed(copy);
}

void commit(Groups& groups) {
  for (const Copy& copy : groups.open) check_copy_committed(copy);
  groups.closed.push_back(std::move(groups.open));
  groups.open.clear();
}

// For each copy of all but the latest `left` groups of a thread, which are then forgotten.
template <class Finish>
void finish(Groups& groups, unsigned left, Finish finish_copy) {
  if (groups.closed.size() <= left) return;
  const auto end = groups.closed.end() - left;
  for (auto group = groups.closed.begin(); group != end; group++)
    for (Copy& copy : *group) finish_copy(copy);
  groups.held -= std::min<size_t>(groups.held, end - groups.closed.begin());
  groups.closed.erase(groups.closed.begin(), end);
}

void write_held(Copy& copy) {
  hold(copy);
  const char* from = copy.held.data();
  copy.each_piece([&](const Piece& p) {
    memcpy(p.global + p.first, from + p.first, p.last - p.first);
    from += p.bytes;
  });
}

Barrier* barrier_of(Worker& w, void* address) {
  if (!w.async) return nullptr;
  for (Barrier& barrier : w.async->barriers)
    if (barrier.address == address) return &barrier;
  return nullptr;
}

// The check comes first: other threads may run in it, and start copies or initialise mbarriers.
Barrier& find_barrier(void* address, const char* what, Site site, const void* call) {
  check_barrier_used(address, what, call);
  if (Barrier* const found = barrier_of(*this_worker, address)) return *found;
  fail("%s (%s:%u): no thread of the block has initialised this mbarrier", what, site.file_name(), site.line());
}

// Of what other blocks of the cluster, too, may ask of an mbarrier.
Barrier& find_barrier_anywhere(void* address, const char* what, Site site, const void* call) {
  check_barrier_used(address, what, call);
  Worker& w = *this_worker;
  if (Barrier* const found = barrier_of(w, address)) return *found;
  for (unsigned i = 0; w.cluster && i < w.cluster->size; i++)
    if (Barrier* const found = barrier_of(*w.cluster->members[i].worker, address)) return *found;
  fail("%s (%s:%u): no thread of the block in which this mbarrier lies has initialised it", what, site.file_name(),
       site.line());
}

bool is_complete(const Barrier& b, unsigned parity) { return b.phase % 2 != parity % 2; }

// Begins the next phase if all of this one is there. Copies land then, so someone must be waiting for them (`wanted`).
void settle(Barrier& b, bool wanted) {
  if (b.pending || b.copied_bytes() != b.expected_bytes || !(wanted || b.copies.empty())) return;
  for (const Copy& copy : b.copies) land(copy);
  b.copies.clear();
  b.expected_bytes = 0;
  b.pending = b.arrivals;
  b.phase++;
  check_phase_completed(b);
  auto goes_on = [&](const Barrier::Waiter& waiter) {
    const bool ready = is_complete(b, waiter.parity);
    if (ready) b.block->ready.push(waiter.fiber), check_waited(b);
    return ready;
  };
  std::erase_if(b.waiters, goes_on);
}

void count(const Copy& copy) {
  if (!COUNTED) return;
  const bool store = is_store(copy.kind);
  count_event(copy_name(copy.kind, copy.multicast), copy.call, copy.shared(), 0);
  if (copy.kind == CopyKind::store_async) return;
  const char* start = nullptr;  // of what lies in one piece
  unsigned bytes = 0, all = 0;
  auto end = [&] { count_copy(copy.call, start, nullptr, bytes, store); };
  copy.each_piece([&](const Piece& p) {
    all += p.bytes;
    if (p.last == p.first) return;
    if (start + bytes != p.global + p.first) end(), start = p.global + p.first, bytes = 0;
    bytes += p.last - p.first;
  });
  end();
  count_copy(copy.call, nullptr, copy.shared(), all, store);
}

// The mbarrier may lie in another block of the cluster, as what is copied to.
void start_load(Copy copy, void* barrier, Site site) {
  check_copy_started(copy);
  count(copy);
  Barrier& b = find_barrier_anywhere(barrier, copy_name(copy.kind, copy.multicast), site, copy.call);
  if (copy.kind != CopyKind::store_async) check_barrier_fenced(b, copy);
  if (!b.pending && b.copied_bytes() == b.expected_bytes) settle(b, true);
  b.copies.push_back(copy);
  settle(b, !b.waiters.empty());
}

void start_multicast(const Copy& copy, void* barrier, unsigned mask, Site site) {
  const char* const name = copy_name(copy.kind, true);
  each_block(mask, name, site, [&](unsigned rank) {
    Copy there = copy;
    there.to = static_cast<char*>(cluster_address(copy.to, rank, name, site));
    there.multicast = true;
    start_load(there, cluster_address(barrier, rank, name, site), site);
  });
}

void start_store(Copy copy) {
  check_copy_started(copy);
  count(copy);
  the_async().stores[linear_thread].open.push_back(copy);
}

}  // namespace

void require_multiple(size_t value, size_t unit, const char* what, Site site) {
  if (value % unit == 0) return;
  check_multiple(value, unit, what, CALL);
  fail("%s:%u: the %s is not a multiple of %zu bytes: %zu past one", site.file_name(), site.line(), what, unit,
       value % unit);
}

void copy_async(void* shared, const void* global, unsigned bytes, unsigned valid) {
  auto* to = static_cast<char*>(shared);
  Copy copy{to, static_cast<const char*>(global), bytes, valid, CopyKind::cp_async, linear_thread, CALL, 0, {}};
  check_copy_started(copy);
  count_copy(CALL, global, shared, valid, false);
  the_async().loads[linear_thread].open.push_back(copy);
}

void copy_async_commit() {
  count_event("cp_async_commit", CALL, nullptr, 0);
  commit(the_async().loads[linear_thread]);
}

void copy_async_wait(unsigned groups) {
  count_event("cp_async_wait", CALL, nullptr, groups);
  finish(the_async().loads[linear_thread], groups, land);
}

void barrier_init(void* address, unsigned arrivals, Site site) {
  require_multiple(reinterpret_cast<size_t>(address), 8, "address of an mbarrier", site);
  if (!arrivals) fail("mbarrier_init (%s:%u): a phase needs at least one arrival", site.file_name(), site.line());
  check_barrier_made(address, CALL);
  auto& barriers = the_async().barriers;
  std::erase_if(barriers, [&](const Barrier& b) { return b.address == address; });
  barriers.push_back({address, arrivals, arrivals, 0, 0, {}, {}, this_worker});
  note_barrier_made(barriers.back());
}

namespace {

void arrive(Barrier& b, unsigned expected_bytes, Site site) {
  if (!b.pending) settle(b, true);  // on a GPU that phase would be over by now
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
  if (is_complete(b, parity)) return check_waited(b), follow_wait(), true;
  yield();
  return false;
}

void barrier_wait(void* address, unsigned parity, Site site) {
  count_event("mbarrier_wait", CALL, address, parity);
  Barrier& b = find_barrier(address, "mbarrier_wait", site, CALL);
  if (!is_complete(b, parity)) settle(b, true);
  if (is_complete(b, parity)) return check_waited(b), follow_wait();
  Worker& w = *this_worker;
  w.current->wait = {"mbarrier_wait", site, 0};
  b.waiters.push_back({w.current, parity});
  wait_for_others(w);
  follow_wait();
}

void bulk_load(void* shared, const void* global, unsigned bytes, void* barrier, Site site) {
  auto* to = static_cast<char*>(shared);
  Copy copy{to, static_cast<const char*>(global), bytes, bytes, CopyKind::bulk_load, linear_thread, CALL, 0, {}};
  start_load(copy, barrier, site);
}

void bulk_load_multicast(void* shared, const void* global, unsigned bytes, void* barrier, unsigned mask, Site site) {
  auto* to = static_cast<char*>(shared);
  Copy copy{to, static_cast<const char*>(global), bytes, bytes, CopyKind::bulk_load, linear_thread, CALL, 0, {}};
  start_multicast(copy, barrier, mask, site);
}

void store_async(void* there, const void* value, void* barrier, Site site) {
  constexpr unsigned BYTES = 16;
  if (the_cluster().size == 1)  // CUDA leaves this open; an H200 says "illegal instruction"
    fail(
        "store_async (%s:%u): the kernel was launched without clusters, where a GPU does not support it; launch it "
        "with clusters of 2 or more blocks, or use an ordinary store",
        site.file_name(), site.line());
  const auto* bytes = static_cast<const char*>(value);
  auto* to = static_cast<char*>(there);
  Copy copy{to, nullptr, BYTES, BYTES, CopyKind::store_async, linear_thread, CALL, 0, {bytes, bytes + BYTES}};
  start_load(copy, barrier, site);
}

void bulk_store(void* global, const void* shared, unsigned bytes) {
  auto* to = static_cast<char*>(global);
  start_store({to, static_cast<const char*>(shared), bytes, bytes, CopyKind::bulk_store, linear_thread, CALL, 0, {}});
}

void check_map(const TensorMap& map, unsigned axes, const char* what, Site site) {
  if (map.mark != TensorMap::MARK)
    fail("%s (%s:%u): the host did not create this tensor map: pass a TensorMap(...) to a kernel's parameter", what,
         site.file_name(), site.line());
  if (map.window)
    fail("%s (%s:%u): the tensor map has windows; pass one without them, or use tensor_load_windows", what,
         site.file_name(), site.line());
  if (map.axes != axes)
    fail("%s (%s:%u): %u coordinates, and the tensor map has %u axes", what, site.file_name(), site.line(), axes,
         map.axes);
}

void check_windows(const TensorMap& map, const char* what, Site site) {
  if (map.mark != TensorMap::MARK || !map.window)
    fail("%s (%s:%u): this tensor map has no windows: pass a TensorMap(..., windows=(R, stride, padding))", what,
         site.file_name(), site.line());
}

Copy box_load(void* shared, const TensorMap& map, BoxPlace at, const void* call) {
  const auto box = std::make_shared<Box>(map, at);
  const auto* from = reinterpret_cast<const char*>(map.address);
  const unsigned bytes = box->bytes();
  return {static_cast<char*>(shared), from, bytes, bytes, CopyKind::tensor_load, linear_thread, call, 0, {}, box};
}

void tensor_load(void* shared, const TensorMap& map, BoxPlace at, void* barrier, Site site) {
  start_load(box_load(shared, map, at, CALL), barrier, site);
}

void tensor_load_multicast(void* shared, const TensorMap& map, BoxPlace at, void* barrier, unsigned mask, Site site) {
  start_multicast(box_load(shared, map, at, CALL), barrier, mask, site);
}

void tensor_store(const TensorMap& map, BoxPlace at, const void* shared) {
  const auto box = std::make_shared<Box>(map, at);
  const auto* from = static_cast<const char*>(shared);
  auto* to = reinterpret_cast<char*>(map.address);
  start_store({to, from, box->bytes(), box->bytes(), CopyKind::tensor_store, linear_thread, CALL, 0, {}, box});
}

void bulk_commit() {
  count_event("bulk_commit", CALL, nullptr, 0);
  commit(the_async().stores[linear_thread]);
}

void bulk_wait(unsigned groups, bool only_read) {
  count_event(only_read ? "bulk_wait_read" : "bulk_wait", CALL, nullptr, groups);
  Groups& stores = the_async().stores[linear_thread];
  if (!only_read) return finish(stores, groups, write_held);
  const size_t count = stores.closed.size() > groups ? stores.closed.size() - groups : 0;
  for (size_t& i = stores.held; i < count; i++)
    for (Copy& copy : stores.closed[i]) hold(copy);
}

void forget_copies(Worker& w) {
  for (unsigned i = 0; i < MAX_THREADS; i++) {
    for (Groups* groups : {&w.async->loads[i], &w.async->stores[i]}) {
      groups->closed.clear();
      groups->held = 0;
      groups->open.clear();
    }
  }
  w.async->barriers.clear();
  w.async->used = false;
}

// A store whose source has been read is on its way, and there when the kernel is over. One that nobody waited for
// reads shared memory of a block that is gone.
void end_copies(Worker& w) {
  if (w.failure.kind != FailureKind::none) return;
  auto end = [](Copy& copy) {
    if (copy.held.empty())
      check_copy_left(copy);
    else
      write_held(copy);
  };
  for (unsigned i = 0; i < w.total; i++) {
    for (Copy& copy : w.async->stores[i].open) check_copy_left(copy);
    finish(w.async->stores[i], 0, end);
  }
}

}  // namespace emulator
