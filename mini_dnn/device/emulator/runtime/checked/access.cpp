// One access of a kernel: inside an array? to something that was written? ordered after what other threads did?
#include <algorithm>

#include "access.h"

namespace emulator {

uint64_t block_of(uint32_t epoch) {
  const auto& owners = the_check.owners;
  auto later = [](uint32_t e, const Check::Owner& o) { return e < o.epoch; };
  return std::prev(std::upper_bound(owners.begin(), owners.end(), epoch, later))->block;
}

namespace {

void note(FindingKind kind, const Region& r, const Access& a, Party other) {
  Finding& f = the_check.finding;
  f.kind = kind;
  f.memory = r.memory;
  f.index = r.index;
  f.start = reinterpret_cast<uint64_t>(r.start);
  f.offset = a.address - r.start;
  f.bytes = a.bytes;
  f.block = block_check(r.rank).block;
  f.own = {a.write, a.atomic, linear_thread, the_check.block, a.pc};
  f.other = other;
  f.exited = this_worker->total - this_worker->alive;
}

[[noreturn]] void report(FindingKind kind, const Region& r, const Access& a, Party other = {}) {
  the_check.pending = false;
  note(kind, r, a, other);
  stop(FailureKind::finding);
}

// How far an access lies outside of an array.
int64_t distance(const Region& r, const Access& a) {
  return a.address < r.start ? r.start - a.address : a.address + a.bytes - (r.start + r.bytes);
}

// What a kernel may use beside its arrays and its stack: the constants of its library (tables, texts), and the list of
// what lanes pass, which the last lane of a warp function reads.
bool is_allowed(const Access& a) {
  const Check& c = the_check;
  const auto* worker = reinterpret_cast<const char*>(this_worker);
  if (a.address >= worker && a.address < worker + sizeof(Worker)) return !a.write;
  return !a.write && a.address >= c.target.base && a.address < c.target.data_start;
}

// Not in any one array.
void outside(const Access& a) {
  if (is_allowed(a)) return;
  const Check& c = the_check;
  const int rank = shared_of(a.address);
  const bool in_data = a.address >= c.target.data_start && a.address < c.target.data_end;
  const Region* nearest = nullptr;
  for (const Region& r : c.regions) {
    const bool possible =
        rank >= 0 ? r.memory == Memory::shared && r.rank == unsigned(rank) : !in_data || r.memory == Memory::symbol;
    if (possible && (!nearest || distance(r, a) < distance(*nearest, a))) nearest = &r;
  }
  static const Region none = {};
  report(FindingKind::out_of_bounds, nearest ? *nearest : none, a);
}

const Region* find(const Access& a) {
  const Check& c = the_check;
  auto next = std::upper_bound(c.regions.begin(), c.regions.end(), a.address,
                               [](const char* p, const Region& r) { return p < r.start; });
  return next != c.regions.begin() && holds(*--next, a) ? &*next : nullptr;
}

// Whether something that thread `who` did is not ordered before what this thread does.
inline bool races(uint16_t who, uint32_t epoch, uint32_t warp_epoch, bool read, bool shared) {
  const Check& c = the_check;
  if (epoch >= c.cluster_epoch) {
    if (who == NOBODY) return false;
    if (!is_mine(epoch)) return !is_ordered(epoch, read);
    if (epoch < c.epoch || who == linear_thread) return false;
    return who / WARP != linear_thread / WARP || warp_epoch == c.warp_epochs[linear_thread / WARP];
  }
  return !shared && epoch >= c.launch_epoch && !c.fenced;  // another block of this launch
}

void check_readers(const Region& r, const Cell& cell, const Access& a) {
  const bool shared = r.memory == Memory::shared;
  if (a.atomic && cell.read_atomic) return;
  auto tell = [&](uint16_t who, uint32_t pc) {
    report(FindingKind::race, r, a, {false, cell.read_atomic, who, block_of(cell.read_epoch), pc});
  };
  if (races(cell.reader, cell.read_epoch, cell.read_warp_epoch, true, shared)) tell(cell.reader, cell.read_pc);
  if (cell.read_epoch < the_check.cluster_epoch || !is_mine(cell.read_epoch)) return;
  if (cell.neighbour != NOBODY && races(cell.neighbour, cell.read_epoch, cell.read_warp_epoch, true, shared))
    tell(cell.neighbour, cell.neighbour_pc);
  // Two readers of two warps: that of this thread's own may be ordered, the other is not.
  if (cell.other != NOBODY && cell.other / WARP != linear_thread / WARP &&
      races(cell.other, cell.read_epoch, 0, true, shared))
    tell(cell.other, cell.other_pc);
}

// Another block's read of shared memory, before this write.
void check_far_reader(const Region& r, const FarRead& read, const Access& a) {
  if ((a.atomic && read.atomic) || !races(read.thread, read.epoch, 0, true, true)) return;
  if (is_mine(read.epoch) && read.thread / WARP == linear_thread / WARP) return;
  report(FindingKind::race, r, a, {false, read.atomic, read.thread, block_of(read.epoch), read.pc});
}

void note_reader(const Region& r, size_t i, const Access& a) {
  if (!r.is_far) return note_read(r.cells[i], a.pc, a.atomic);
  r.far[i] = {the_check.now, uint32_t(a.pc), uint16_t(linear_thread), a.atomic};
}

void visit(const Region& r, size_t i, const Access& a) {
  Check& c = the_check;
  Cell& cell = r.cells[i];
  const bool shared = r.memory == Memory::shared;
  const bool written = shared ? cell.write_epoch >= c.cluster_epoch : cell.write_epoch != NEVER;
  if (!written && !a.write && r.memory != Memory::symbol) {
    if (!shared) report(FindingKind::uninitialised, r, a);
    // Another thread may write it before the next barrier: then this is a race.
    if (!c.pending) note(FindingKind::uninitialised, r, a, {});
    c.pending = true;
  }
  // Bytes within a cell may be of different threads.
  const bool whole = a.bytes >= size_t(1) << r.shift;
  if (whole && !(a.atomic && cell.write_atomic) &&
      races(cell.writer, cell.write_epoch, cell.write_warp_epoch, false, shared))
    report(FindingKind::race, r, a, {true, cell.write_atomic, cell.writer, block_of(cell.write_epoch), cell.write_pc});
  if (!a.write) return note_reader(r, i, a);
  if (whole) check_readers(r, cell, a);
  if (whole && r.far) check_far_reader(r, r.far[i], a);
  cell.write_epoch = c.now;
  cell.write_warp_epoch = c.warp_epochs[linear_thread / WARP];
  cell.writer = linear_thread;
  cell.write_pc = a.pc;
  cell.write_atomic = a.atomic;
}

}  // namespace

void give_up_pending() {
  if (!the_check.pending) return;
  the_check.pending = false;
  stop(FailureKind::finding);
}

void check_cells(const Region& r, const Access& a) {
  if (r.memory == Memory::unknown) return;
  if (r.is_far) note_far(r, a.address, a.bytes, a.write, a.pc);
  const size_t first = (a.address - r.start) >> r.shift, last = (a.address + a.bytes - 1 - r.start) >> r.shift;
  for (size_t i = first; i <= last; i++)
    if (!a.write && !r.is_far && is_settled(r, r.cells[i].write_epoch))
      note_read(r.cells[i], a.pc, a.atomic);
    else
      visit(r, i, a);
}

void check_elsewhere(const Access& a) {
  Check& c = the_check;
  if (!c.active || !a.bytes) return;
  c.last_pc = a.pc;
  if (++c.steps >= c.pause) pause_steps(a.pc);
  const Region* r = find(a);
  if (!r) return outside(a);
  c.recent[a.pc % RECENT] = r;
  check_cells(*r, a);
}

}  // namespace emulator
