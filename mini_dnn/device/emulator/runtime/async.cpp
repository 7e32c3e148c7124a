// Copies that take effect when they are waited for: see include/emulator/async_interface.h.
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
  if (!w.async) w.async = new Async;  // exists as long as the process, like the worker
  w.async->used = true;
  return *w.async;
}

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

namespace {

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

// Applies to each copy in all but the latest `left` groups of a thread, which are then forgotten.
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
  check_store_complete(copy);
}

void count(const Copy& copy) {
  if (!COUNTED) return;
  const bool store = is_store(copy.kind);
  count_event(copy_name(copy.kind, copy.multicast), copy.call, copy.shared(), 0);
  if (copy.kind == CopyKind::store_async) return;
  const char* start = nullptr;  // of a contiguous piece
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

// The mbarrier may be in another block of the cluster, and so may the destination of the copy.
void start_load(Copy copy, void* barrier, Site site) {
  check_copy_started(copy);
  count(copy);
  Barrier& b = find_barrier_anywhere(barrier, copy_name(copy.kind, copy.multicast), site, copy.call);
  if (copy.kind != CopyKind::store_async)
    check_barrier_fenced(b, copy);
  else
    require_same_block(b, copy.to, copy_name(copy.kind, false), site);
  if (!b.pending && b.copied_bytes() == b.expected_bytes) settle(b, true);
  check_copy_counted(copy, b);
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
  if (the_cluster().size == 1)  // CUDA leaves this open; an H200 reports "illegal instruction"
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

// A store whose source has been read will be complete at the end of the kernel. A store without any wait reads shared
// memory of a block that no longer exists.
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
