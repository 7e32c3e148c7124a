// The short way through an access: most are reads, of the array that the same line read last.
#pragma once
#include "shadow.h"

namespace emulator {

constexpr size_t STACKS = MAX_THREADS * (STACK_BYTES + 320);  // runtime/fibers.cpp

struct Access {
  const char* address;
  size_t bytes;
  bool write, atomic;
  uint64_t pc;
};

void check_cells(const Region& r, const Access& a);
void check_elsewhere(const Access& a);  // not in the array that the line used last

inline bool holds(const Region& r, const Access& a) {
  return a.address >= r.start && a.address + a.bytes <= r.start + r.bytes;
}

// Of the readers since a barrier, those that a race with a later write would need: two of a warp, and one of another.
[[gnu::always_inline]] inline void note_read(Cell& cell, uint64_t pc, bool atomic) {
  const Check& c = the_check;
  const uint32_t warp_epoch = c.warp_epochs[linear_thread / WARP];
  if (cell.read_epoch != c.epoch && (cell.read_epoch < c.epoch || !is_mine(cell.read_epoch))) {
    cell.neighbour = cell.other = NOBODY;
  } else if (cell.reader / WARP != linear_thread / WARP) {
    cell.other = cell.reader;
    cell.other_pc = cell.read_pc;
    cell.neighbour = NOBODY;
  } else if (cell.read_warp_epoch != warp_epoch) {
    cell.neighbour = NOBODY;
  } else if (cell.read_atomic == atomic && (cell.reader == linear_thread || cell.neighbour != NOBODY)) {
    return;
  } else if (cell.reader != linear_thread) {
    cell.neighbour = cell.reader;
    cell.neighbour_pc = cell.read_pc;
  }
  cell.read_epoch = c.now;
  cell.read_warp_epoch = warp_epoch;
  cell.reader = linear_thread;
  cell.read_pc = pc;
  cell.read_atomic = atomic;
}

// Whether nothing is wrong with reading what was written at that time: by the host, by an earlier launch, or by this
// block before a barrier.
inline bool is_settled(const Region& r, uint32_t write_epoch) {
  const Check& c = the_check;
  if (write_epoch >= c.cluster_epoch)
    return write_epoch < c.ordered_epoch || (c.many && write_epoch < c.epoch && is_mine(write_epoch));
  return r.memory != Memory::shared && write_epoch != NEVER && write_epoch < c.launch_epoch;
}

inline void check_access(const void* address, size_t bytes, bool write, bool atomic, const void* pc) {
  Check& c = the_check;
  const auto* p = static_cast<const char*>(address);
  if (size_t(p - c.stacks) < STACKS || (!write && size_t(p - c.words) < c.words_bytes)) return;
  const Access a = {p, bytes, write, atomic, uint64_t(static_cast<const char*>(pc) - c.target.base)};
  if (copies_under_way) check_under_way(p, bytes, write, a.pc);
  const Region* r = c.recent[a.pc % RECENT];
  if (!r || !holds(*r, a)) return check_elsewhere(a);
  c.last_pc = a.pc;
  if (++c.steps >= c.pause) pause_steps(a.pc);
  const size_t offset = p - r->start, i = offset >> r->shift;
  if (!write && r->cells && !r->is_far && (offset + bytes - 1) >> r->shift == i &&
      is_settled(*r, r->cells[i].write_epoch))
    return note_read(r->cells[i], a.pc, atomic);
  check_cells(*r, a);
}

}  // namespace emulator
