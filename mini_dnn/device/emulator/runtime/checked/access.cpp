// One access of a kernel. Is it inside an array? Was that written? Is it ordered after what other threads did?
#include <algorithm>
#include <array>

#include "clocks.h"
#include "verdict.h"

namespace emulator {

uint64_t block_of(uint32_t epoch) {
  const auto& owners = the_check.owners;
  auto later = [](uint32_t e, const Check::Owner& o) { return e < o.epoch; };
  return std::prev(std::upper_bound(owners.begin(), owners.end(), epoch, later))->block;
}

namespace {

// For cells whose bytes belong to different threads: each byte separately.
using Parts = std::array<Cell, 4>;
std::vector<Parts> all_parts;
std::vector<uint32_t> free_parts;

Parts& parts_of(Cell& cell) {
  if (cell.write_epoch != SPLIT) {
    if (free_parts.empty()) {
      free_parts.push_back(all_parts.size());
      all_parts.emplace_back();
    }
    const uint32_t number = free_parts.back();
    free_parts.pop_back();
    all_parts[number].fill(cell);
    cell.write_epoch = SPLIT;
    cell.write_pc = number;
    cell.seen = 0;
  }
  return all_parts[cell.write_pc];
}

const Region* find(const Access& a) {
  const Check& c = the_check;
  auto next = std::upper_bound(c.regions.begin(), c.regions.end(), a.address,
                               [](const char* p, const Region& r) { return p < r.start; });
  return next != c.regions.begin() && holds(*--next, a) ? &*next : find_in_heap(a);
}

const Region* look_up(const Access& a) {
  const Region* recent = the_check.recent[a.pc % RECENT];
  return recent && holds(*recent, a) ? recent : find(a);
}

// Whether something that thread `who` did is not ordered before what this thread does.
inline bool races(uint16_t who, uint32_t epoch, bool read, bool shared, const char* p) {
  const Check& c = the_check;
  if (epoch < c.launch_epoch || (shared && epoch < c.cluster_epoch) || who == NOBODY) return false;
  if (epoch >= c.cluster_epoch && is_mine(epoch)) {
    const unsigned warp = linear_thread / WARP;
    const uint32_t met = std::max(c.warp_epochs[warp], read ? c.clocks->read_until(warp) : 0);
    if (epoch < c.epoch || who == linear_thread || (who / WARP == warp && epoch < met)) return false;
  } else if (c.many && epoch >= c.cluster_epoch && (epoch < c.ordered_epoch || who >= LANDED)) {
    return false;
  }
  if (epoch >= c.cluster_epoch && knows(who, epoch, read)) return false;
  return !c.fenced || !has_learned(block_of(epoch), who, epoch, p);
}

// Whether one thread may write while another reads: a flag, which by itself does not publish any data.
bool may_meet(const Region& r, Manner write, Manner read, uint16_t other, uint32_t epoch) {
  if (read == Manner::plain || write == Manner::plain) return false;
  if (write != Manner::is_volatile) return true;
  const Check& c = the_check;  // lanes that rely on lock step, and tiles without a barrier, are volatile, too
  return r.memory != Memory::shared &&
         !(epoch >= c.cluster_epoch && is_mine(epoch) && other / WARP == linear_thread / WARP);
}

void check_writer(const Region& r, const Cell& cell, const Access& a) {
  const Manner manner = cell.write_manner;
  if (a.manner == Manner::atomic && manner == Manner::atomic) return;
  if (!races(cell.writer, cell.write_epoch, false, r.memory == Memory::shared, a.address)) return;
  if (!a.write && may_meet(r, manner, a.manner, cell.writer, cell.write_epoch)) return;
  if (cell.writer >= LANDED) report_landed(cell, a);
  report_race(r, a, {true, manner == Manner::atomic, cell.writer, block_of(cell.write_epoch), cell.write_pc});
}

void check_readers(const Region& r, const Cell& cell, const Access& a) {
  const bool shared = r.memory == Memory::shared;
  auto check = [&](uint16_t who, uint32_t epoch, uint32_t pc) {
    if (!races(who, epoch, true, shared, a.address)) return;
    if (may_meet(r, a.manner, cell.read_manner, who, epoch)) return;
    report_race(r, a, {false, cell.read_manner == Manner::atomic, who, block_of(epoch), pc});
  };
  check(cell.reader, cell.read_epoch, cell.read_pc);
  if (cell.read_epoch < the_check.cluster_epoch || !is_mine(cell.read_epoch)) return;
  if (cell.neighbour != NOBODY) check(cell.neighbour, cell.neighbour_epoch, cell.neighbour_pc);
  // Readers in two warps: this thread's own warp may be ordered, the other one is not.
  if (cell.other != NOBODY && cell.other / WARP != linear_thread / WARP)
    check(cell.other, cell.other_epoch, cell.other_pc);
}

// Another block's read of shared memory, before this write.
void check_far_reader(const Region& r, const FarRead& read, const Access& a) {
  if ((a.manner == Manner::atomic && read.atomic) || !races(read.thread, read.epoch, true, true, a.address)) return;
  if (is_mine(read.epoch) && read.thread / WARP == linear_thread / WARP) return;
  report_race(r, a, {false, read.atomic, read.thread, block_of(read.epoch), read.pc});
}

// Before the thread has waited for the launches ahead: what they wrote, or what they read and this access writes.
void check_ahead(const Region& r, const Cell& cell, const Access& a) {
  Check& c = the_check;
  auto of_ahead = [&c](uint32_t epoch) { return epoch >= c.settled_epoch && epoch < c.launch_epoch; };
  const bool written = of_ahead(cell.write_epoch);
  if ((!written && !(a.write && of_ahead(cell.read_epoch))) || !is_ahead()) return;
  c.pending = false;
  note(FindingKind::race, r, a, {written});
  c.finding.detail = Detail::ahead;
  snprintf(c.finding.type, sizeof c.finding.type, "%s", kernel_of(written ? cell.write_epoch : cell.read_epoch));
  stop(FailureKind::finding);
}

// A cell, or one byte of it.
void visit(const Region& r, Cell& cell, const Access& a) {
  Check& c = the_check;
  const bool shared = r.memory == Memory::shared;
  if (!shared && c.settled_epoch != c.launch_epoch) check_ahead(r, cell, a);
  const bool written = shared ? cell.write_epoch >= c.cluster_epoch : cell.write_epoch != NEVER || r.sparse;
  if (!written && (!a.write || a.update) && (r.memory != Memory::symbol || r.forgotten)) {
    if (!shared) report(FindingKind::uninitialised, r, a);
    // Another thread may write it before the next barrier, which would be a race.
    if (!c.pending) note(FindingKind::uninitialised, r, a, {});
    c.pending = true;
  }
  check_writer(r, cell, a);
  if (!a.write) {
    if (!r.is_far) note_read(cell, a.pc, a.manner);
    return;
  }
  check_readers(r, cell, a);
  // Atomics are ordered among themselves
  if (a.update && cell.read_manner == Manner::atomic) cell.reader = NOBODY, cell.seen = 0;
  cell.write_epoch = now();
  cell.writer = linear_thread;
  cell.write_pc = a.pc;
  cell.write_manner = a.manner;
}

void note_halves(const Region& r) {
  Check& c = the_check;
  if (c.halves_of != c.target.base) c.halves.assign(c.target.shared_count, false);
  c.halves_of = c.target.base;
  c.halves[r.index] = c.more_halves = true;
}

// The part of an access that is in one cell.
void visit_part(const Region& r, size_t i, Access& a) {
  Cell& cell = r.cells[i];
  const size_t bytes = size_t(1) << r.shift, start = i << r.shift, offset = a.address - r.start;
  const size_t first = offset > start ? offset - start : 0, last = std::min(bytes, offset + a.bytes - start);
  const bool whole = last - first == bytes;
  a.from = start + first - offset;
  if (whole && r.far && a.write) check_far_reader(r, r.far[i], a);
  if (r.is_far && !a.write) r.far[i] = {now(), uint32_t(a.pc), uint16_t(linear_thread), a.manner == Manner::atomic};
  if (whole && cell.write_epoch != SPLIT) return visit(r, cell, a);
  if (!whole && r.memory == Memory::shared && r.shift == 2) note_halves(r);
  for (size_t k = first; k < last; k++, a.from++) visit(r, parts_of(cell)[k], a);
  if (!whole || !a.write) return;
  const Cell now_whole = parts_of(cell)[0];
  drop_parts(cell);
  cell = now_whole;
}

}  // namespace

void drop_parts(Cell& cell) {
  if (cell.write_epoch != SPLIT) return;
  free_parts.push_back(cell.write_pc);
  cell.write_epoch = NEVER;
}

const Cell* parts_of(const Cell& cell, int& count) {
  const bool split = cell.write_epoch == SPLIT;
  count = split ? 4 : 1;
  return split ? all_parts[cell.write_pc].data() : &cell;
}

void check_cells(const Region& r, const Access& access) {
  if (r.memory == Memory::unknown) return;
  Check& c = the_check;
  Access a = access;
  const bool reads = !a.write || a.update, shared = r.memory == Memory::shared;
  if (reads && (a.manner == Manner::is_volatile || a.update)) follow_wait();  // a use of an mbarrier is neither
  if (a.update) c.steps++;                                                    // it reads and writes
  if (r.read_only && !a.write)
    for (size_t i = (a.address - r.start) >> r.shift; i <= (a.address + a.bytes - 1 - r.start) >> r.shift; i++)
      check_read_only(r, r.cells[i], a, Detail::read_only_pointer);
  if (r.is_far) note_far(r, a.address, a.bytes, a.write, a.pc);
  if (c.fenced && a.write && a.manner != Manner::atomic && takes_fence(now())) a.manner = Manner::handed;
  const size_t offset = a.address - r.start, unit = (size_t(1) << r.shift) - 1;
  const size_t first = offset >> r.shift, last = (offset + a.bytes - 1) >> r.shift;
  const bool whole = !((offset | a.bytes) & unit);
  for (size_t i = first; i <= last; i++) {
    Cell& cell = r.cells[i];
    if (whole && !a.write && !r.is_far && is_settled(r, cell))
      note_read(cell, a.pc, a.manner);
    else
      visit_part(r, i, a);
  }
  if (!c.fenced || a.manner < Manner::is_volatile) return;
  if (reads) note_flag_seen(a.address, shared);
  if (a.write && a.manner != Manner::is_volatile) note_flag_set(a.address, shared, a.update);
}

void check_slowly(const void* address, size_t bytes, bool write, const void* pc) {
  check_access(address, bytes, write, Manner::plain, pc);
}

void check_more(const void* address, size_t bytes, bool write, const void* pc) {
  write ? check_plain<true>(address, bytes, pc) : check_plain<false>(address, bytes, pc);
}

void note_plain_read(Cell& cell, uint64_t line) { note_read<true>(cell, line, Manner::plain); }

void check_read_only_load(const void* address, size_t bytes, const void* pc) {
  const Access a = {static_cast<const char*>(address), bytes, false, Manner::plain, pc_of(pc)};
  const Region* r = find(a);
  if (!r || !r->cells) return;
  const size_t first = (a.address - r->start) >> r->shift, last = (a.address + a.bytes - 1 - r->start) >> r->shift;
  for (size_t i = first; i <= last; i++) check_read_only(*r, r->cells[i], a, Detail::read_only_load);
}

void check_elsewhere(const Access& a) {
  Check& c = the_check;
  if (!c.active || !a.bytes) return;
  c.last_pc = a.pc;
  if (++c.steps >= c.pause) pause_steps(a.pc);
  if (a.manner != Manner::plain && (!a.write || a.update) && look_up(a)) note_poll(a);
  // Other threads may have run until here: started copies, or freed memory.
  if (copies_under_way) check_under_way(a.address, a.bytes, a.write, a.pc);
  const Region* r = look_up(a);
  if (!r) return report_outside(a);
  c.recent[a.pc % RECENT] = r;
  check_cells(*r, a);
}

}  // namespace emulator
