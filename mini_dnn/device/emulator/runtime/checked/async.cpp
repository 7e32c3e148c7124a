// Asynchronous copies and products in checked mode: their addresses, and who accesses their bytes while they are in
// flight.
#include "../async.h"

#include <algorithm>

#include "access.h"

namespace emulator {

bool copies_under_way = false, copy_starts = false;

namespace {

constexpr size_t WORD = 4;  // bytes

struct Flight {
  CopyKind kind;
  bool multicast;
  unsigned thread;
  uint64_t pc;
  bool committed;
  uint64_t block = the_check.block;
  uint32_t epoch = the_check.epoch;  // when it was started
};

// For one block or cluster: its copies and products so far, and for each word of a block's shared memory the number of
// the last one that is in flight there.
struct Flights {
  uint32_t cluster_epoch = 0;
  std::vector<Flight> all;
  std::vector<uint32_t> words[MAX_CLUSTER];
} flights;

bool only_reads(CopyKind kind) { return is_store(kind) || kind == CopyKind::product; }  // shared memory

Party this_thread(const void* call) { return {0, 0, linear_thread, the_check.block, pc_of(call)}; }
Party starter(const Flight& f) { return {0, 0, f.thread, f.block, f.pc}; }

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

template <class Visit>
void each_word(const char* p, size_t bytes, Visit visit) {
  const int rank = shared_of(p);
  if (rank < 0) return;
  const char* const start = block_check(rank).shared_start;
  auto& words = flights.words[rank];
  const size_t first = (p - start) / WORD, last = (p + bytes - 1 - start) / WORD;
  for (size_t i = first; i <= last && i < words.size(); i++) visit(words[i]);
}

const Region* find_region(const char* p) {
  for (const Region& r : the_check.regions)
    if (p >= r.start && p < r.start + r.bytes) return &r;
  return nullptr;
}

// The data of a copy count as written now. The copy engine is not a thread: all that waited may read the data.
void note_landed(const Copy& copy, const Piece& piece) {
  const Region* r = find_region(piece.shared);
  if (!r || !r->cells) return;
  const size_t at = piece.shared - r->start, last = (at + piece.bytes - 1) >> r->shift;
  for (size_t i = at >> r->shift; i <= last; i++) {
    Cell& cell = r->cells[i];
    drop_parts(cell);
    cell.write_epoch = now();
    cell.writer = copy.kind == CopyKind::cp_async ? copy.thread : NOBODY;
    cell.write_pc = flights.all[copy.id].pc;
    cell.write_manner = Manner::plain;
  }
}

void note(const char* name, const char* state, const char* p, size_t bytes, Party own, Party other) {
  const Region* r = find_region(p);
  Finding& f = the_check.finding;
  f.kind = FindingKind::async;
  f.memory = r ? r->memory : Memory::unknown;
  f.index = r ? r->index : 0;
  f.start = reinterpret_cast<uint64_t>(r ? r->start : p);
  f.block = r ? block_check(r->rank).block : 0;
  f.offset = r ? p - r->start : 0;
  f.bytes = bytes;
  f.own = own;
  f.other = other;
  snprintf(f.type, sizeof f.type, "%s %s", name, state);
}

void note_finding(const Flight& flight, const char* state, const char* p, size_t bytes, Party own) {
  Party other = starter(flight);
  other.write = !only_reads(flight.kind);
  note(copy_name(flight.kind, flight.multicast), state, p, bytes, own, other);
}

}  // namespace

void note_async(const char* name, const char* state, const char* p, size_t bytes, const void* call, Party other) {
  note(name, state, p, bytes, this_thread(call), other);
  the_check.pending = false;
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

// The copy engine and the tensor cores may not see what a thread wrote to shared memory without a fence after the
// write: by that thread before the barrier, or by the thread that starts the copy or product.
void check_fenced(CopyKind kind, const char* from, size_t bytes, const void* call) {
  const Region* r = find_region(from);
  if (!r || !r->cells) return;
  const size_t first = (from - r->start) >> r->shift, last = (from + bytes - 1 - r->start) >> r->shift;
  for (size_t i = first; i <= last; i++) {
    int count;
    const Cell* const parts = parts_of(r->cells[i], count);
    for (const Cell* cell = parts; cell != parts + count; cell++) {
      if (cell->writer == NOBODY || cell->write_epoch < the_check.cluster_epoch ||  // nobody has written it
          is_fenced(cell->write_epoch, cell->writer))
        continue;
      const Flight writer{kind, false, cell->writer, cell->write_pc, false, block_of(cell->write_epoch)};
      note_finding(writer, "unfenced", r->start + (i << r->shift), 1, this_thread(call));
      the_check.finding.other.write = 1;
      the_check.pending = false;
      stop(FailureKind::finding);
    }
  }
}

void check_copy_started(Copy& copy) {
  begin_flights();
  const Check& c = the_check;
  const bool store = is_store(copy.kind), of_barrier = !store && copy.kind != CopyKind::cp_async;
  const int rank = shared_of(copy.shared());
  if (rank < 0 || (rank != int(c.rank) && !of_barrier))
    fail("an asynchronous copy was given an address that is not in shared memory where it must be");
  check_not_gone(rank, copy.to, copy.bytes, copy_name(copy.kind, copy.multicast), pc_of(copy.call));
  copy_starts = true;
  copy.each_piece([&](const Piece& p) {
    if (p.global) check_access(p.global + p.first, p.last - p.first, store, Manner::plain, copy.call);
    check_access(p.shared, p.bytes, !store, Manner::plain, copy.call);
    if (store) check_fenced(copy.kind, p.shared, p.bytes, copy.call);
  });
  copy_starts = false;
  copy.id = flights.all.size();
  flights.all.push_back({copy.kind, copy.multicast, copy.thread, c.last_pc, of_barrier});
  copy.each_piece([&](const Piece& p) { each_word(p.shared, p.bytes, [&](uint32_t& word) { word = copy.id + 1; }); });
  copies_under_way = true;
}

void check_copy_committed(const Copy& copy) { flights.all[copy.id].committed = true; }

void check_copy_landed(const Copy& copy) {
  copy.each_piece([&](const Piece& p) {
    each_word(p.shared, p.bytes, [&](uint32_t& word) { word = word == copy.id + 1 ? 0 : word; });
    if (!is_store(copy.kind)) note_landed(copy, p);
  });
}

void check_copy_left(const Copy& copy) {
  const Flight& flight = flights.all[copy.id];
  note_finding(flight, "left", copy.from, copy.bytes, starter(flight));
  this_worker->failure.kind = FailureKind::finding;
}

void check_product_reads(const Product& product) {
  const Check& c = the_check;
  begin_flights();
  auto check_start = [&](const char* which, const Matrix& matrix) {
    if (matrix.start < c.shared_start || matrix.start >= c.shared_end)
      fail("wgmma_m64k16 (%s:%u): %s is not in shared memory", product.site.file_name(), product.site.line(), which);
  };
  if (!product.a_in_registers) check_start("a", product.a);
  check_start("b", product.b);
  product.each_chunk([&](const char* p) {
    check_access(p, CHUNK, false, Manner::plain, product.pc);
    check_fenced(CopyKind::product, p, CHUNK, product.pc);
  });
}

void check_product_started(Product& product) {
  product.id = flights.all.size();
  flights.all.push_back({CopyKind::product, false, product.thread, pc_of(product.pc), false});
  product.each_chunk([&](const char* p) { each_word(p, CHUNK, [&](uint32_t& word) { word = product.id + 1; }); });
  copies_under_way = true;
}

void check_product_committed(const Product& product) { flights.all[product.id].committed = true; }

void check_product_made(const Product& product) {
  note_sums(product);
  product.each_chunk(
      [&](const char* p) { each_word(p, CHUNK, [&](uint32_t& word) { word = word == product.id + 1 ? 0 : word; }); });
}

void check_product_left(const Product& product) {
  const Flight& flight = flights.all[product.id];
  note_finding(flight, "left", product.b.start, CHUNK, starter(flight));
  this_worker->failure.kind = FailureKind::finding;
}

void check_sums_under_way(const Product& product, const void* wait_call) {
  const Flight& flight = flights.all[product.id];
  note_finding(flight, flight.committed ? "left-under-way" : "uncommitted", product.b.start, CHUNK,
               this_thread(wait_call));
  the_check.pending = false;
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
  if (flight.kind == CopyKind::product && other_warp && flight.epoch == c.epoch) return;
  note_finding(flight, flight.committed ? "committed" : "open", p, bytes, {write, 0, linear_thread, c.block, pc});
  the_check.pending = false;
  stop(FailureKind::finding);
}

// The block has ended, and should have waited for what others sent to it.
bool check_all_landed(const Worker& w) {
  for (const Barrier& barrier : w.async->barriers)
    for (const Copy& copy : barrier.copies) {
      const Flight& flight = flights.all[copy.id];
      if (flight.block == the_check.block) continue;
      note_finding(flight, "unawaited", copy.to, copy.bytes, starter(flight));
      return false;
    }
  return true;
}

}  // namespace emulator
