// Warp barriers: the lanes in a mask wait for each other, and the last to arrive works for all.
#include <bit>

#include "scheduler.h"

#define CALL __builtin_return_address(0)

namespace emulator {

namespace {

// Makes all lanes of a complete rendezvous ready except `self`, which runs (WARP: none does).
void finish(Worker& w, Warp& warp, Rendezvous& r, unsigned self) {
  const unsigned arrived = r.arrived;
  check_steps(std::popcount(arrived));
  if (!r.operation) check_warp_barrier(&warp - w.warps, r.mask);  // only __syncwarp orders memory accesses
  if (r.operation) {
    w.busy = true;
    r.operation(warp.arguments, arrived);
    w.busy = false;
  }
  count_warp_met(w, &warp - w.warps);
  for (unsigned lanes = arrived; lanes; lanes &= lanes - 1) {
    const unsigned i = __builtin_ctz(lanes);
    if (i != self) w.ready.push(warp.fibers[i]);
  }
  r = warp.rendezvous[--warp.open];
}

Rendezvous& find_rendezvous(Worker& w, Warp& warp, unsigned mask, WarpOperation operation, const void* call) {
  for (int i = 0; i < warp.open; i++) {
    Rendezvous& r = warp.rendezvous[i];
    if (r.mask != mask || r.call != call) continue;
    if (CHECKED && r.operation != operation) continue;  // reported once all have arrived
    if (r.operation != operation) stop_stuck(w);        // the lanes called different functions
    return r;
  }
  Rendezvous& r = warp.rendezvous[warp.open++];
  r = {mask, 0, operation, call};
  return r;
}

bool complete(const Warp& warp, const Rendezvous& r) { return ((r.arrived | warp.exited) & r.mask) == r.mask; }

inline void meet(unsigned mask, void* argument, WarpOperation operation, const void* call, const char* name, Site site,
                 const void* pc) {
  Worker& w = *this_worker;
  count_warp_operation(mask, name, pc);
  Warp& warp = w.warps[linear_thread / WARP];
  const unsigned self = linear_thread % WARP;
  Fiber* me = w.current;
  w.idle = 0;
  me->wait.name = name;
  me->wait.site = site;
  me->wait.mask = mask;
  if (!operation) check_warp_arrival(mask, name, site);
  warp.fibers[self] = me;
  warp.arguments[self] = argument;
  Rendezvous& r = find_rendezvous(w, warp, mask, operation, call);
  r.arrived |= 1u << self;
  if (complete(warp, r)) {
    finish(w, warp, r, CHECKED ? WARP : self);
    if (CHECKED) take_turn(w);
    return;
  }
  wait_for_others(w);
}

void tell_arrived(void* const* arguments, unsigned arrived) {
  for (unsigned lanes = arrived; lanes; lanes &= lanes - 1)
    *static_cast<unsigned*>(arguments[__builtin_ctz(lanes)]) = arrived;
}

}  // namespace

void warp_barrier(unsigned mask, void* argument, WarpOperation operation, const char* name, Site site) {
  if (!(mask >> linear_thread % WARP & 1))
    fail_warp("%s (%s:%u) was called by lane %u with mask 0x%08x, which leaves that lane out", name, site.file_name(),
              site.line(), linear_thread % WARP, mask);
  meet(mask, argument, operation, nullptr, name, site, CALL);
}

void require_all_lanes(unsigned arrived) {
  if (arrived == ~0u) return;
  const Wait& wait = this_worker->warps[linear_thread / WARP].fibers[__builtin_ctz(arrived)]->wait;
  fail_warp("%s (%s:%u) needs all 32 lanes of a warp; found mask 0x%08x", wait.name, wait.site.file_name(),
            wait.site.line(), arrived);
}

unsigned converged_lanes(Site site) {
  unsigned lanes;
  meet(~0u, &lanes, tell_arrived, std::bit_cast<const void*>(site), "__activemask", site, CALL);
  return lanes;
}

// These two are not inlined: works_for_warp() in checked/stack.cpp looks for a frame below that of the thread's start.
[[gnu::noinline]] bool release_partial_group(Worker& w) {
  for (unsigned first = 0; first < w.total; first += WARP) {
    Warp& warp = w.warps[first / WARP];
    for (int i = 0; i < warp.open; i++) {
      if (!warp.rendezvous[i].call) continue;
      finish(w, warp, warp.rendezvous[i], WARP);
      return true;
    }
  }
  return false;
}

[[gnu::noinline]] void thread_left_warp(Worker& w, unsigned linear) {
  Warp& warp = w.warps[linear / WARP];
  warp.exited |= 1u << linear % WARP;
  for (int i = warp.open; i-- > 0;) {
    Rendezvous& r = warp.rendezvous[i];
    if (complete(warp, r)) finish(w, warp, r, WARP);
  }
}

}  // namespace emulator
