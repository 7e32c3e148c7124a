// Says which threads of a stuck block wait where.
#include <cstdarg>

#include "scheduler.h"

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
  return a.mask == b.mask && a.site.line() == b.site.line() && a.site.column() == b.site.column() &&
         !strcmp(a.name, b.name);
}

}  // namespace

void stop_stuck(Worker& w) {
  Text text{w.failure.text, sizeof w.failure.text};
  const Wait* waits[MAX_THREADS] = {};
  auto gather = [&](const Fiber* f) { waits[f->linear] = &f->wait; };
  for (Fiber* f = w.waiting.first; f; f = f->next) gather(f);
  for (unsigned i = 0; i < w.total; i += WARP)
    for (int r = 0; r < w.warps[i / WARP].open; r++)
      for (unsigned lanes = w.warps[i / WARP].rendezvous[r].arrived; lanes; lanes &= lanes - 1)
        gather(w.warps[i / WARP].fibers[__builtin_ctz(lanes)]);

  auto exited = [&](unsigned i) { return w.warps[i / WARP].exited >> i % WARP & 1; };
  bool told[MAX_THREADS] = {};
  for (unsigned i = 0; i < w.total; i++) {
    if (!waits[i] || told[i]) continue;
    const Wait& wait = *waits[i];
    auto here = [&](unsigned j) { return waits[j] && same_wait(*waits[j], wait); };
    for (unsigned j = i; j < w.total; j++) told[j] |= here(j);
    text.add("\n  threads ");
    add_threads(text, w.total, here);
    text.add(" wait at %s (%s:%u)", wait.name, wait.site.file_name(), wait.site.line());
    if (wait.mask) text.add(" for the lanes of mask 0x%08x", wait.mask);
  }
  auto running = [&](unsigned i) { return !waits[i] && !exited(i); };
  auto tell = [&](const char* what, auto chosen) {
    for (unsigned i = 0; i < w.total; i++) {
      if (!chosen(i)) continue;
      text.add("\n  threads ");
      add_threads(text, w.total, chosen);
      text.add(" %s", what);
      return;
    }
  };
  tell("have not reached a barrier", running);
  tell("have returned", exited);
  stop(FailureKind::deadlock);
}

}  // namespace emulator
