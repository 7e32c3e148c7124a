// The stacks of a worker: one region, so that it can use huge pages. A switch then costs half as much, because the
// stacks of a block no longer need a TLB entry each. Blocks that mostly wait have small pages: with huge ones, each
// would take as much memory as its stacks have room. The drawback is that only the first stack has a guard region. The
// others have a mark at their ends, which is checked when the launch ends.
#include <sys/mman.h>

#include "scheduler.h"

namespace emulator {

namespace {

constexpr size_t HUGE_PAGE = 2 << 20;
// Not a power of two: otherwise the tops of all stacks would share one set of the cache.
constexpr size_t STRIDE = STACK_BYTES + 5 * 64;
constexpr uint64_t END_MARK = 0x6f7665726672656eull;

}  // namespace

// Address space, not memory: only what threads touch is allocated.
bool reserve_stacks(Worker& w, bool huge_pages) {
  if (w.stacks) return true;
  const size_t guard = guard_bytes(), bytes = HUGE_PAGE + MAX_THREADS * STRIDE;
  void* region = mmap(nullptr, bytes + 2 * guard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) return false;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(region) + guard + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  w.stacks = reinterpret_cast<char*>(first);
  mprotect(w.stacks, MAX_THREADS * STRIDE, PROT_READ | PROT_WRITE);
#ifdef MADV_HUGEPAGE
  if (huge_pages) madvise(w.stacks, MAX_THREADS * STRIDE, MADV_HUGEPAGE);  // a hint only
#endif
  return true;
}

char* stack_of(const Worker& w, const Fiber* f) { return w.stacks + (f - w.fibers) * STRIDE; }

Fiber* take_fiber(Worker& w, void (*entry)()) {
  Fiber* f = w.free_fibers;
  if (f) {
    w.free_fibers = f->next;
  } else {
    f = &w.fibers[w.fiber_count++];
    memcpy(stack_of(w, f), &END_MARK, sizeof END_MARK);
  }
  prepare_context(f->context, stack_of(w, f), stack_of(w, f) + STACK_BYTES, entry);
  return f;
}

void give_fiber(Worker& w, Fiber* f) {
  f->next = w.free_fibers;
  w.free_fibers = f;
}

void release_fibers(Worker& w) {
  w.free_fibers = nullptr;
  for (int i = w.fiber_count; i-- > 0;) give_fiber(w, &w.fibers[i]);
}

bool stack_overflowed(Worker& w, const void* fault) {
  const auto* address = static_cast<const char*>(fault);
  bool found = w.stacks && address < w.stacks && address >= w.stacks - STACK_BYTES;
  for (int i = 0; i < w.fiber_count; i++) {
    char* end = stack_of(w, &w.fibers[i]);
    found |= memcmp(end, &END_MARK, sizeof END_MARK) != 0;
    memcpy(end, &END_MARK, sizeof END_MARK);
  }
  return found;
}

void note_overflow(Failure& failure) {
  failure.kind = FailureKind::stack_overflow;
  memset(failure.block, 0xff, sizeof failure.block);
}

}  // namespace emulator
