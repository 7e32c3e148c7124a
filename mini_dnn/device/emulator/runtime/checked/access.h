// The fast path of an access: most are reads of the array that the same line read last.
#pragma once
#include "clocks.h"

namespace emulator {

constexpr size_t STACKS = MAX_THREADS * (STACK_BYTES + 320);  // runtime/fibers.cpp

struct Access {
  const char* address;
  size_t bytes;
  bool write;
  Manner manner;
  uint64_t pc;
  bool update = false;  // an atomic that has read the value it overwrites
  size_t from = 0;      // the first byte that a finding is about
};

// The place of a call or an access in the library of the kernels.
inline uint64_t pc_of(const void* call) { return static_cast<const char*>(call) - the_check.target.base; }

void check_cells(const Region& r, const Access& a);
void note_poll(const Access& a);  // a thread that reads a flag repeatedly lets others run
void check_read_only_load(const void* address, size_t bytes, const void* pc);
void check_elsewhere(const Access& a);  // perhaps not in the array that the line used last; others may run before
void check_stack(const Access& a);      // on a thread's stack
void check_depth(const void* pc);       // of this thread's stack
[[noreturn]] void report_stack(const Access& a, Detail detail, const char* back = nullptr);

// Whether it is a variable of the function that called the hook into which this is inlined: these are between the two
// frames. Most stack accesses are; check_stack() follows the frames for all others.
[[gnu::always_inline]] inline bool is_own_variable(const void* address, size_t bytes) {
#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)
  const auto *p = static_cast<const char*>(address), *back = static_cast<const char*>(__builtin_return_address(0));
  const auto* const frame = static_cast<const char* const*>(__builtin_frame_address(0));
  const Target& kernels = the_check.target;
  const char *const first = reinterpret_cast<const char*>(frame + 2), *const end = *frame - kernels.kept_bytes;
  return p >= first && p < end && bytes <= size_t(end - p) && back >= kernels.base && back < kernels.data_start;
#else
  return false;
#endif
}

inline bool holds(const Region& r, const Access& a) {
  return a.address >= r.start && a.address + a.bytes <= r.start + r.bytes;
}

inline uint32_t own(uint32_t& token) {
  if (token == NO_TOKEN) token = ++the_check.last_token;
  return token;
}

// Records, of the readers since a barrier, those that a race with a later write needs: two of one warp, and one of
// another. `alone`: no other block has begun that has not ended.
template <bool alone = false>
[[gnu::always_inline]] inline void note_read(Cell& cell, uint64_t pc, Manner manner) {
  Check& c = the_check;
  const unsigned me = linear_thread;
  if (cell.read_epoch < c.epoch || (!alone && c.several && !is_mine(cell.read_epoch))) {
    cell.neighbour = cell.other = NOBODY;
  } else if (cell.reader / WARP != me / WARP) {
    cell.other = cell.reader;
    cell.other_pc = cell.read_pc;
    cell.other_epoch = cell.read_epoch;
    cell.neighbour = NOBODY;
  } else if (cell.read_epoch < c.warp_epochs[me / WARP]) {
    cell.neighbour = NOBODY;
  } else if (cell.read_manner == manner && cell.read_epoch >= c.arrivals[me / WARP] &&
             (cell.reader == me || cell.neighbour != NOBODY)) {
    return;
  } else if (cell.reader != me) {
    cell.neighbour = cell.reader;
    cell.neighbour_pc = cell.read_pc;
    cell.neighbour_epoch = cell.read_epoch;
  }
  cell.read_epoch = alone ? c.clock : now();
  cell.reader = me;
  cell.read_pc = pc;
  cell.read_manner = manner;
  cell.seen = 0;
  if (!alone) return;
  // A write by any thread races with one of two warps, unless a fence and a flag order it after both.
  if (cell.other != NOBODY && !c.fenced)
    cell.seen = own(c.token);
  else if (cell.neighbour != NOBODY)
    cell.seen = own(c.tokens[me / WARP]);
}

// Whether it is right to read what was written at that time: by the host, by an earlier launch, or by this block before
// a barrier or the arrival at an mbarrier that this thread has waited for.
inline bool is_settled(const Region& r, const Cell& cell) {
  const Check& c = the_check;
  const uint32_t write_epoch = cell.write_epoch;
  if (write_epoch >= c.cluster_epoch)
    return write_epoch < c.ordered_epoch || (c.several && write_epoch < c.epoch && is_mine(write_epoch)) ||
           knows(cell.writer, write_epoch, false);
  return r.memory != Memory::shared && write_epoch != NEVER && write_epoch < c.settled_epoch;
}

[[gnu::always_inline]] inline void check_access(const void* address, size_t bytes, bool write, Manner manner,
                                                const void* pc, bool update = false) {
  Check& c = the_check;
  const auto* p = static_cast<const char*>(address);
  const Access a = {p, bytes, write, manner, pc_of(pc), update};
  const Region* r = c.recent[a.pc % RECENT];
  if (!r || !holds(*r, a)) {
    if (is_own_variable(address, bytes)) return;
    if (size_t(p - c.stacks) < STACKS) return check_stack(a);
    if (!write && size_t(p - c.words) < c.words_bytes) return;
    return check_elsewhere(a);
  }
  if (!bytes || manner != Manner::plain || c.steps + 1 >= c.pause) return check_elsewhere(a);
  if (copies_under_way) check_under_way(p, bytes, write, a.pc);
  c.last_pc = a.pc;
  c.steps++;
  const size_t offset = p - r->start;
  if (!write && r->cells && !r->is_far && !r->read_only && !((offset | bytes) & r->mask)) {
    Cell* const first = r->cells + (offset >> r->shift);
    Cell* const end = first + (bytes >> r->shift);
    Cell* cell = first;
    while (cell != end && is_settled(*r, *cell)) cell++;
    if (cell == end) {
      for (cell = first; cell != end; cell++) note_read(*cell, a.pc, manner);
      return;
    }
  }
  check_cells(*r, a);
}

void check_slowly(const void* address, size_t bytes, bool write, const void* pc);
void note_plain_read(Cell& cell, uint64_t line);

// Whether a plain read or write of a cell is right: it was written before the last barrier, or nobody has used it
// since. For launches whose blocks run one after the other.
template <bool write>
[[gnu::always_inline]] inline bool is_fine(const Check& c, bool shared, const Cell& cell) {
  if constexpr (write) {
    const uint32_t last = shared ? c.ordered_epoch : c.settled_epoch;
    return cell.write_epoch < last && cell.read_epoch < last;
  }
  const uint32_t written = cell.write_epoch;
  if (written >= c.cluster_epoch) return written < c.ordered_epoch;
  return !shared && written != NEVER && written < c.settled_epoch;
}

// Where most accesses are: in an array for which the state of its cells is enough. Otherwise nullptr.
template <bool write>
[[gnu::always_inline]] inline const Region* plain_region(uint64_t line) {
  const Check& c = the_check;
  const Region* r = c.recent[line % RECENT];
  const bool look = !r || !r->is_plain || c.several || (write && c.fenced) || copies_under_way;
  return look || c.steps + 1 >= c.pause ? nullptr : r;
}

template <bool write>
[[gnu::always_inline]] inline void note_plain(Cell& cell, uint64_t line) {
  const Check& c = the_check;
  const unsigned me = linear_thread;
  if constexpr (write) {
    cell.write_epoch = c.clock;
    cell.writer = me;
    cell.write_pc = line;
    cell.write_manner = Manner::plain;
  } else if (cell.seen != c.tokens[me / WARP] && cell.seen != c.token) {
    note_plain_read(cell, line);
  }
}

// The common case: nothing is wrong, and no stack space is needed here.
template <bool write>
[[gnu::always_inline]] inline void check_plain(const void* address, size_t bytes, const void* pc) {
  Check& c = the_check;
  const uint64_t line = pc_of(pc);
  const Region* r = plain_region<write>(line);
  if (!r) return is_own_variable(address, bytes) ? void() : check_slowly(address, bytes, write, pc);
  const size_t offset = static_cast<const char*>(address) - r->start;
  if (offset >= r->bytes || r->bytes - offset < bytes || (offset | bytes) & r->mask)
    return check_slowly(address, bytes, write, pc);
  Cell* const first = r->cells + (offset >> r->shift);
  Cell* const end = first + (bytes >> r->shift);
  const bool shared = r->memory == Memory::shared;
  for (const Cell* cell = first; cell != end; cell++)
    if (!is_fine<write>(c, shared, *cell)) return check_slowly(address, bytes, write, pc);
  c.last_pc = line;
  c.steps++;
  for (Cell* cell = first; cell != end; cell++) note_plain<write>(*cell, line);
}

void note_barrier_fence();
[[noreturn]] void report_landed(const Cell& cell, const Access& a);  // this thread has not waited for the copy
bool is_fenced(uint32_t epoch, unsigned writer);                     // what a thread wrote then: fences.cpp

void check_more(const void* address, size_t bytes, bool write, const void* pc);  // check_plain()

// The same for the usual number of bytes of a cell.
template <size_t bytes, bool write>
[[gnu::always_inline]] inline void check_cell(const void* address, const void* pc) {
  Check& c = the_check;
  const uint64_t line = pc_of(pc);
  const Region* r = plain_region<write>(line);
  if (!r || r->mask != bytes - 1)
    return is_own_variable(address, bytes) ? void() : check_more(address, bytes, write, pc);
  const size_t offset = static_cast<const char*>(address) - r->start;
  if (offset % bytes || offset / bytes >= r->whole) return check_slowly(address, bytes, write, pc);
  Cell& cell = r->cells[offset / bytes];
  if (!is_fine<write>(c, r->memory == Memory::shared, cell)) return check_slowly(address, bytes, write, pc);
  c.last_pc = line;
  c.steps++;
  note_plain<write>(cell, line);
}

}  // namespace emulator
