// Describes which threads of a stuck block wait where.
#include <cstdarg>

#include "async.h"
#include "cluster.h"

namespace emulator {

namespace {

struct Text {
  char* end;
  size_t left;
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(end, left, format, arguments);
    va_end(arguments);
    const size_t used = n < 0 ? 0 : size_t(n) < left ? size_t(n) : left - 1;
    end += used;
    left -= used;
  }
};

// "0-4, 7, 9-31": the threads for which `chosen` holds.
template <class Chosen>
void add_threads(Text& text, unsigned total, Chosen chosen) {
  int shown = 0;
  for (unsigned i = 0; i < total; i++) {
    if (!chosen(i)) continue;
    unsigned last = i;
    while (last + 1 < total && chosen(last + 1)) last++;
    if (shown++ == 8) {
      text.add(", ...");
      return;
    }
    text.add(last == i ? "%s%u" : "%s%u-%u", shown > 1 ? ", " : "", i, last);
    i = last;
  }
}

bool same_wait(const Wait& a, const Wait& b) {
  if (!a.name || !b.name || a.mask != b.mask) return a.name == b.name && a.mask == b.mask;
  return a.site.line() == b.site.line() && a.site.column() == b.site.column() && !strcmp(a.name, b.name);
}

struct Threads {
  const Wait* waits[MAX_THREADS] = {};  // of those that wait, or that have let others run first
  unsigned absent[MAX_THREADS] = {};    // lanes that a thread waits for
  bool ready[MAX_THREADS] = {};
  const Barrier* barriers[MAX_THREADS] = {};  // mbarriers
  bool for_cluster[MAX_THREADS] = {}, for_warpgroup[MAX_THREADS] = {};
};

void find_waits(Worker& w, Threads& all) {
  auto note = [&](const Fiber* f) { all.waits[f->linear] = &f->wait; };
  for (Fiber* f = w.waiting.first; f; f = f->next) note(f);
  if (w.cluster)
    for (Fiber* f = member_of(w).waiting.first; f; f = f->next) note(f), all.for_cluster[f->linear] = true;
  for (Fiber* f = w.ready.first; f; f = f->next) note(f), all.ready[f->linear] = true;
  if (w.async)
    for (const Barrier& b : w.async->barriers)
      for (const Barrier::Waiter& waiter : b.waiters) note(waiter.fiber), all.barriers[waiter.fiber->linear] = &b;
  if (w.async)
    for (const Warpgroup& g : w.async->warpgroups)
      for (const Fiber* f : g.waiters) note(f), all.for_warpgroup[f->linear] = true;
  for (unsigned i = 0; i < w.total; i += WARP) {
    const Warp& warp = w.warps[i / WARP];
    for (int r = 0; r < warp.open; r++) {
      const unsigned arrived = warp.rendezvous[r].arrived;
      for (unsigned lanes = arrived; lanes; lanes &= lanes - 1) {
        note(warp.fibers[__builtin_ctz(lanes)]);
        if (!warp.rendezvous[r].call)
          all.absent[i + __builtin_ctz(lanes)] = warp.rendezvous[r].mask & ~arrived & ~warp.exited;
      }
    }
  }
}

void add_wait(Text& text, const Wait& wait, bool ready, bool with_column, unsigned absent) {
  if (!wait.name) return text.add(" run at @%x", wait.mask);
  text.add(" %s %s (%s:%u", ready ? "have passed" : "wait at", wait.name, wait.site.file_name(), wait.site.line());
  if (with_column) text.add(":%u", wait.site.column());
  text.add(")");
  if (ready || !wait.mask) return;
  text.add(" for the lanes of mask 0x%08x", wait.mask);
  if (!absent) return;
  text.add("; absent: ");
  add_threads(text, WARP, [&](unsigned lane) { return absent >> lane & 1; });
}

void add_barrier(Text& text, const Barrier& b) {
  text.add(" for an mbarrier in phase %u (parity %u)", b.phase, b.phase % 2);
  if (b.pending) text.add(", with %u of %u arrivals missing", b.pending, b.arrivals);
  if (b.expected_bytes || !b.copies.empty())
    text.add(", which expects %llu bytes and gets %llu", (unsigned long long)b.expected_bytes,
             (unsigned long long)b.copied_bytes());
}

// For those that wait for the whole cluster.
void add_cluster(Text& text, const Cluster& c) {
  text.add(", which %u of the %u threads of the cluster have not reached", c.alive - c.arrived, c.alive);
}

// `block`: " of block (1, 0, 0)" if there are several blocks, otherwise empty.
void tell_block(Text& text, Worker& w, const char* block) {
  Threads all;
  find_waits(w, all);
  bool told[MAX_THREADS] = {};
  for (unsigned i = 0; i < w.total; i++) {
    if (!all.waits[i] || told[i]) continue;
    const Wait& wait = *all.waits[i];
    auto here = [&](unsigned j) {
      return all.waits[j] && all.ready[i] == all.ready[j] && all.barriers[i] == all.barriers[j] &&
             same_wait(*all.waits[j], wait);
    };
    bool with_column = false;  // for two calls on one line
    for (unsigned j = 0; j < w.total; j++) {
      told[j] |= here(j);
      const Wait* other = all.waits[j];
      with_column |= wait.name && other && other->name && other->site.line() == wait.site.line() &&
                     other->site.column() != wait.site.column();
    }
    text.add("\n  threads ");
    add_threads(text, w.total, here);
    text.add("%s", block);
    add_wait(text, wait, all.ready[i], with_column, all.absent[i]);
    if (all.barriers[i]) add_barrier(text, *all.barriers[i]);
    if (all.for_cluster[i]) add_cluster(text, *w.cluster);
    if (all.for_warpgroup[i]) text.add(" for a product that another warp of the warpgroup has not started");
  }
  auto exited = [&](unsigned i) { return w.warps[i / WARP].exited >> i % WARP & 1; };
  auto running = [&](unsigned i) { return !all.waits[i] && !exited(i); };
  auto tell = [&](const char* what, auto chosen) {
    for (unsigned i = 0; i < w.total; i++) {
      if (!chosen(i)) continue;
      text.add("\n  threads ");
      add_threads(text, w.total, chosen);
      text.add("%s %s", block, what);
      return;
    }
  };
  tell("have not reached a barrier", running);
  tell("have returned", exited);
}

}  // namespace

void tell_threads(Worker& w) {
  Text text{w.failure.text, sizeof w.failure.text};
  if (!w.cluster || w.cluster->size == 1) return tell_block(text, w, "");
  for (unsigned i = 0; i < w.cluster->size; i++) {
    const Member& m = w.cluster->members[i];
    char block[64];
    snprintf(block, sizeof block, " of block (%u, %u, %u)", m.block.x, m.block.y, m.block.z);
    if (m.begun) tell_block(text, *m.worker, block);
  }
}

void stop_stuck(Worker& w) {
  require_products(w);
  tell_threads(w);
  stop(FailureKind::deadlock);
}

}  // namespace emulator
