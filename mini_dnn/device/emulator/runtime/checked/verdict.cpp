// What is found at an access: recorded, reported immediately, or kept until its cause is known.
#include "verdict.h"

#include <algorithm>

namespace emulator {

namespace {

// What a racing write is about to change. If it changes nothing, both wrote the same value.
struct {
  const char* address = nullptr;
  size_t bytes;
  char before[16];
} the_write;

// At a barrier or a warp function: it may turn out that threads wait at different ones.
bool threads_wait() {
  const Worker& w = *this_worker;
  for (unsigned i = 0; i < w.total; i += WARP)
    if (w.warps[i / WARP].open) return true;
  return w.waiting_count;
}

// How far outside of an array an access is.
int64_t distance(const Region& r, const Access& a) {
  return a.address < r.start ? r.start - a.address : a.address + a.bytes - (r.start + r.bytes);
}

// What a kernel may use besides its arrays and its stack: the constants of its library (tables, texts), and the list of
// values passed by lanes, which the last lane of a warp function reads.
bool is_allowed(const Access& a) {
  const Check& c = the_check;
  const auto* worker = reinterpret_cast<const char*>(this_worker);
  if (a.address >= worker && a.address < worker + sizeof(Worker)) return !a.write;
  return !a.write && a.address >= c.target.base && a.address < c.target.data_start;
}

}  // namespace

void note(FindingKind kind, const Region& r, const Access& a, Party other) {
  Finding& f = the_check.finding;
  f.kind = kind;
  f.memory = r.memory;
  f.index = r.index;
  f.start = reinterpret_cast<uint64_t>(r.start);
  const bool copied = copy_starts && a.write;  // as a whole
  f.offset = a.address - r.start + (copied ? 0 : a.from);
  f.bytes = a.bytes;
  f.block = block_check(r.rank).block;
  f.own = {a.write, a.manner == Manner::atomic, linear_thread, the_check.block, a.pc};
  f.other = other;
  f.exited = the_check.exited;
  f.detail = copied ? Detail::copied : Detail::none;
  if (r.memory == Memory::heap) note_heap(f);
}

[[noreturn]] void report(FindingKind kind, const Region& r, const Access& a, Party other) {
  Check& c = the_check;
  if (!c.pending || c.finding.kind != FindingKind::race) note(kind, r, a, other);
  c.pending = false;
  stop(FailureKind::finding);
}

// A race within a block waits until its threads meet: if they wait at different barriers, that is its cause.
void report_race(const Region& r, const Access& a, Party other) {
  Check& c = the_check;
  if (c.pending && c.finding.kind == FindingKind::race) return;
  note(FindingKind::race, r, a, other);
  const bool both_write =
      a.write && !copy_starts && other.write && a.manner != Manner::atomic && a.bytes <= sizeof the_write.before;
  const bool of_warp = other.thread / WARP == linear_thread / WARP;
  const bool waits = !c.many && other.block == c.block && (of_warp || threads_wait());
  c.pending = both_write || waits;
  if (!c.pending) stop(FailureKind::finding);
  if (!both_write) return;
  the_write.address = a.address;
  the_write.bytes = a.bytes;
  memcpy(the_write.before, a.address, a.bytes);
  c.pause = c.steps + 1;
}

// Not in a single array.
void report_outside(const Access& a) {
  if (is_allowed(a) || check_beside_heap(a)) return;
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

// The read-only cache keeps what it has read, even if someone writes it later in the launch.
void check_read_only(const Region& r, const Cell& whole, const Access& a, Detail detail) {
  Check& c = the_check;
  int count;
  const Cell* const parts = parts_of(whole, count);
  auto older = [](const Cell& a, const Cell& b) { return a.write_epoch < b.write_epoch; };
  const Cell& cell = *std::max_element(parts, parts + count, older);
  if (r.memory != Memory::global || cell.write_epoch < c.launch_epoch) return;
  c.pending = false;
  note(FindingKind::race, r, a,
       {true, cell.write_manner == Manner::atomic, cell.writer, block_of(cell.write_epoch), cell.write_pc});
  c.finding.detail = detail;
  stop(FailureKind::finding);
}

void look_at_write() {
  if (!the_write.address) return;
  Check& c = the_check;
  if (c.pending && !memcmp(the_write.before, the_write.address, the_write.bytes)) c.finding.detail = Detail::same_value;
  the_write.address = nullptr;
}

bool end_pending_race() {
  Check& c = the_check;
  look_at_write();
  if (!c.pending || c.finding.kind != FindingKind::race) return false;
  const Finding& f = c.finding;
  const bool of_warp = f.own.block == f.other.block && f.own.thread / WARP == f.other.thread / WARP;
  if (!of_warp && !threads_wait()) give_up_pending();
  return true;
}

void check_warp_arrival(unsigned mask, const char* name, Site site) {
  Check& c = the_check;
  const unsigned warp = linear_thread / WARP, last = c.warp_masks[warp];
  const Finding& f = c.finding;
  const bool of_warp = f.own.block == f.other.block && f.own.thread / WARP == warp && f.other.thread / WARP == warp;
  if (!c.pending || f.kind != FindingKind::race || !of_warp || last == mask || !(last & mask)) return;
  c.pending = false;
  fail_warp(
      "%s (%s:%u) waits with mask 0x%08x, and other lanes have met with mask 0x%08x: they do not wait for each other",
      name, site.file_name(), site.line(), mask, last);
}

void give_up_pending() {
  look_at_write();
  if (!the_check.pending) return;
  the_check.pending = false;
  stop(FailureKind::finding);
}

}  // namespace emulator
