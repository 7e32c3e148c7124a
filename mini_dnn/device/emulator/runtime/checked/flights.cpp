// What is in flight, and who accesses it meanwhile or without having waited for it.
#include "flights.h"

#include <algorithm>

namespace emulator {

bool copies_under_way = false, copy_starts = false;
Flights flights;

void begin_flights() {
  const Check& c = the_check;
  if (flights.cluster_epoch == c.cluster_epoch) return;
  flights.cluster_epoch = c.cluster_epoch;
  flights.all.clear();
  for (unsigned i = 0; i < (c.many ? this_worker->cluster->size : 1); i++) {
    const BlockCheck& b = block_check(i);
    flights.words[i].assign((b.shared_end - b.shared_start) / WORD + 1, 0);
  }
}

const Region* find_region(const char* p) {
  for (const Region& r : the_check.regions)
    if (p >= r.start && p < r.start + r.bytes) return &r;
  return nullptr;
}

void note_finding(FindingKind kind, const char* name, const char* state, const char* p, size_t bytes, Party own,
                  Party other) {
  const Region* r = find_region(p);
  const int rank = shared_of(p);
  Finding& f = the_check.finding;
  f.kind = kind;
  f.memory = r ? r->memory : Memory::unknown;
  f.index = r ? r->index : 0;
  f.start = reinterpret_cast<uint64_t>(r ? r->start : p);
  f.block = rank < 0 ? 0 : block_check(rank).block;
  f.offset = r ? p - r->start : 0;
  f.bytes = bytes;
  f.own = own;
  f.other = other;
  snprintf(f.type, sizeof f.type, "%s %s", name, state);
  the_check.pending = false;
}

void note_finding(const Flight& flight, const char* state, const char* p, size_t bytes, Party own) {
  Party other = starter(flight);
  other.write = !only_reads(flight.kind);
  note_finding(FindingKind::async, copy_name(flight.kind, flight.multicast), state, p, bytes, own, other);
}

void check_multiple(size_t value, size_t unit, const char* what, const void* call) {
  Finding& f = the_check.finding;
  f.kind = FindingKind::misaligned;
  f.offset = value % unit;
  f.bytes = unit;
  f.own = this_thread(call);
  snprintf(f.type, sizeof f.type, "%s", what);
  stop(FailureKind::finding);
}

void check_under_way(const char* p, size_t bytes, bool write, uint64_t pc) {
  const Check& c = the_check;
  if (!c.active || shared_of(p) < 0) return;
  if (flights.cluster_epoch != c.cluster_epoch) {  // those belong to a block that has ended
    copies_under_way = false;
    return;
  }
  uint32_t found = 0;
  each_word(p, bytes, [&](uint32_t word) { found = word ? word : found; });
  if (!found) return;
  const Flight& flight = flights.all[found - 1];
  if (only_reads(flight.kind) && !write) return;  // both read
  // Warps whose products read the same b need a barrier before one of them writes it. Without one, this is a race.
  const bool other_warp = flight.thread / WARP != linear_thread / WARP;
  const bool before = flight.epoch < c.epoch || knows(flight.thread, flight.epoch, true);
  if (flight.kind == CopyKind::product && other_warp && flight.block == c.block && !before) return;
  note_finding(flight, flight.committed ? "committed" : "open", p, bytes, {write, 0, linear_thread, c.block, pc});
  stop(FailureKind::finding);
}

void report_landed(const Cell& cell, const Access& a) {
  const auto is_it = [&](const Flight& f) { return f.lander == cell.writer && f.pc == cell.write_pc; };
  const auto flight = std::find_if(flights.all.rbegin(), flights.all.rend(), is_it);
  note_finding(*flight, "landed", a.address, a.bytes, {a.write, 0, linear_thread, the_check.block, a.pc});
  stop(FailureKind::finding);
}

}  // namespace emulator
