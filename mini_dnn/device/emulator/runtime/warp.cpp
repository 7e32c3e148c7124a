// Warp barriers: the lanes named by a mask wait for each other, and the last to arrive works for all.
#include "scheduler.h"

namespace emulator {

namespace {

// Makes all lanes of a complete rendezvous ready except `self`, which runs (WARP: none does).
void finish(Worker& w, Warp& warp, Rendezvous& r, unsigned self) {
  const unsigned arrived = r.arrived;
  if (r.operation) r.operation(warp.arguments, arrived);
  for (unsigned lanes = arrived; lanes; lanes &= lanes - 1) {
    const unsigned i = __builtin_ctz(lanes);
    if (i != self) w.ready.push(warp.fibers[i]);
  }
  r = warp.rendezvous[--warp.open];
}

Rendezvous& find_rendezvous(Worker& w, Warp& warp, unsigned mask, WarpOperation operation) {
  for (int i = 0; i < warp.open; i++) {
    Rendezvous& r = warp.rendezvous[i];
    if (r.mask != mask) continue;
    if (r.operation != operation) stop_stuck(w);  // the lanes called different functions
    return r;
  }
  Rendezvous& r = warp.rendezvous[warp.open++];
  r = {mask, 0, operation};
  return r;
}

}  // namespace

void warp_barrier(unsigned mask, void* argument, WarpOperation operation, const char* name, Site site) {
  Worker& w = *this_worker;
  Warp& warp = w.warps[linear_thread / WARP];
  const unsigned self = linear_thread % WARP;
  if (!(mask >> self & 1))
    fail("%s (%s:%u) was called by lane %u with mask 0x%08x, which leaves that lane out", name, site.file_name(),
         site.line(), self, mask);
  Fiber* me = w.current;
  me->wait.name = name;
  me->wait.site = site;
  me->wait.mask = mask;
  warp.fibers[self] = me;
  warp.arguments[self] = argument;
  Rendezvous& r = find_rendezvous(w, warp, mask, operation);
  r.arrived |= 1u << self;
  if (((r.arrived | warp.exited) & mask) == mask)
    finish(w, warp, r, self);
  else
    wait_for_others(w);
}

void thread_left_warp(Worker& w, unsigned linear) {
  Warp& warp = w.warps[linear / WARP];
  warp.exited |= 1u << linear % WARP;
  for (int i = warp.open; i-- > 0;) {
    Rendezvous& r = warp.rendezvous[i];
    if (((r.arrived | warp.exited) & r.mask) == r.mask) finish(w, warp, r, WARP);
  }
}

}  // namespace emulator
