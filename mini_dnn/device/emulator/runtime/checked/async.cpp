// Asynchronous copies and products in checked mode: their addresses, and when they begin and end.
#include <algorithm>

#include "flights.h"

namespace emulator {

namespace {

// The data of a copy count as written now, by its thread or by the mbarrier.
void note_written(const Copy& copy, const char* p, size_t bytes) {
  const Region* r = find_region(p);
  if (!bytes || !r || !r->cells) return;
  const Flight& flight = flights.all[copy.id];
  const Check& c = the_check;
  const bool of_thread = copy.kind == CopyKind::cp_async || is_store(copy.kind);
  const unsigned rank = r->memory == Memory::shared ? r->rank : c.rank;
  const uint32_t time = c.many && c.ranks.back() != rank ? new_epoch(rank) : c.clock;
  const size_t at = p - r->start, last = (at + bytes - 1) >> r->shift;
  for (size_t i = at >> r->shift; i <= last; i++) {
    Cell& cell = r->cells[i];
    drop_parts(cell);
    cell.write_epoch = time;
    cell.writer = of_thread ? copy.thread : flight.lander;
    cell.write_pc = flight.pc;
    cell.write_manner = Manner::plain;
  }
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
      if (cell->writer >= LANDED || cell->write_epoch < the_check.cluster_epoch ||  // nobody has written it
          is_fenced(cell->write_epoch, cell->writer))
        continue;
      const Party writer{1, 0, cell->writer, block_of(cell->write_epoch), cell->write_pc};
      note_finding(FindingKind::async, copy_name(kind, false), "unfenced", r->start + (i << r->shift), 1,
                   this_thread(call), writer);
      stop(FailureKind::finding);
    }
  }
}

}  // namespace

void check_copy_started(Copy& copy) {
  begin_flights();
  const Check& c = the_check;
  const bool store = is_store(copy.kind), of_barrier = !store && copy.kind != CopyKind::cp_async;
  const int rank = shared_of(copy.shared());
  if (rank < 0 || (rank != int(c.rank) && !of_barrier)) {
    the_check.last_pc = pc_of(copy.call);
    fail("the %s of %s is not in the shared memory of the block", store ? "source" : "destination",
         copy_name(copy.kind, copy.multicast));
  }
  check_not_gone(rank, copy.to, copy.bytes, copy_name(copy.kind, copy.multicast), pc_of(copy.call));
  copy_starts = copy.kind != CopyKind::cp_async;
  copy.each_piece([&](const Piece& p) {
    if (p.global) check_access(p.global + p.first, p.last - p.first, store, Manner::plain, copy.call);
    check_access(p.shared, p.bytes, !store, Manner::plain, copy.call);
    if (store) check_fenced(copy.kind, p.shared, p.bytes, copy.call);
  });
  copy_starts = false;
  copy.id = flights.all.size();
  flights.all.push_back({copy.kind, copy.multicast, copy.thread, pc_of(copy.call), of_barrier});
  copy.each_piece([&](const Piece& p) { each_word(p.shared, p.bytes, [&](uint32_t& word) { word = copy.id + 1; }); });
  copies_under_way = true;
}

void check_copy_counted(const Copy& copy, Barrier& b) {
  const bool there = shared_of(copy.to) == shared_of(static_cast<const char*>(b.address));
  flights.all[copy.id].lander = there ? lander_of(b) : NOBODY;
  if (!b.notes.arrived) b.notes.arrived = std::make_shared<Clock>();
  b.notes.arrived->after_grid_wait |= !is_ahead();  // the phase is not complete before the copy has started
}

void check_copy_committed(const Copy& copy) { flights.all[copy.id].committed = true; }

void check_copy_landed(const Copy& copy) {
  copy.each_piece([&](const Piece& p) {
    each_word(p.shared, p.bytes, [&](uint32_t& word) { word = word == copy.id + 1 ? 0 : word; });
    if (!is_store(copy.kind)) note_written(copy, p.shared, p.bytes);
  });
}

void check_store_complete(const Copy& copy) {
  copy.each_piece([&](const Piece& p) { note_written(copy, p.global + p.first, p.last - p.first); });
}

void check_copy_left(const Copy& copy) {
  const Flight& flight = flights.all[copy.id];
  note_finding(flight, flight.committed ? "left" : "left-open", copy.from, copy.bytes, starter(flight));
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
  begin_later();
}

void check_product_read_again(const Product& product) {
  flights.all[product.id].epoch = now();
  begin_later();
}

void check_product_committed(const Product& product) { flights.all[product.id].committed = true; }

void check_product_made(const Product& product) {
  note_sums_made(product);
  note_product_made(product.thread / WARP, flights.all[product.id].epoch);
  product.each_chunk(
      [&](const char* p) { each_word(p, CHUNK, [&](uint32_t& word) { word = word == product.id + 1 ? 0 : word; }); });
}

void check_product_waited(const Product& product) {
  note_sums_waited(product);
  note_product_waited(product.thread / WARP);
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
