// Memory that kernels allocate from the heap, as arrays of checked mode. Each has margins that belong to nobody. Freed
// memory stays until the launch ends, so that later uses are noticed.
#include <algorithm>
#include <cstdlib>
#include <map>

#include "access.h"

namespace emulator {

namespace {

constexpr size_t MARGIN = 256;           // at least this, and at least the size of the memory itself
constexpr size_t MOST_FREED = 64 << 20;  // bytes that stay, including their cells

struct Allocation {
  Region region;
  size_t bytes;
  uint64_t pc;
  Party freed_by;
  bool is_freed = false;
};
std::map<const char*, Allocation> heap;  // by address; `recent` points to regions
size_t freed_bytes = 0;

size_t bytes_with_cells(const Allocation& one) {
  return one.bytes * (1 + sizeof(Cell) / 4) + 2 * heap_margin(one.bytes);
}

// The last one that begins at this address or before it.
Allocation* find_before(const char* p) {
  const auto next = heap.upper_bound(p);
  return next == heap.begin() ? nullptr : &std::prev(next)->second;
}

[[noreturn]] void report(Detail detail, const Allocation* one, const Access& a) {
  Check& c = the_check;
  Finding& f = c.finding;
  f.kind = detail == Detail::none ? FindingKind::out_of_bounds : FindingKind::freed;
  f.memory = one ? Memory::heap : Memory::unknown;
  f.start = one ? reinterpret_cast<uint64_t>(one->region.start) : 0;
  f.offset = one ? a.address - one->region.start : 0;
  f.bytes = a.bytes;
  f.own = {a.write, a.manner == Manner::atomic, linear_thread, c.block, a.pc};
  f.other = one && detail != Detail::none ? one->freed_by : Party{};
  f.detail = detail;
  if (one) note_heap(f);
  c.pending = false;
  stop(FailureKind::finding);
}

void drop(const Allocation& one) {
  for (size_t i = 0; i <= one.bytes >> one.region.shift; i++) drop_parts(one.region.cells[i]);
  free(one.region.cells);
  free(one.region.start - heap_margin(one.bytes));
}

}  // namespace

size_t heap_margin(size_t bytes) { return (std::max(MARGIN, bytes) + MARGIN - 1) / MARGIN * MARGIN; }

const Region* find_in_heap(const Access& a) {
  const Allocation* one = find_before(a.address);
  return one && holds(one->region, a) ? &one->region : nullptr;
}

bool check_beside_heap(const Access& a) {
  Allocation* one = find_before(a.address);
  const auto next = heap.upper_bound(a.address);
  if (one && a.address >= one->region.start + one->bytes + heap_margin(one->bytes)) one = nullptr;
  if (!one && next != heap.end() && a.address >= next->first - heap_margin(next->second.bytes)) one = &next->second;
  if (!one) return false;
  const bool inside = a.address >= one->region.start && a.address + a.bytes <= one->region.start + one->bytes;
  if (!one->is_freed || !inside) report(Detail::none, one, a);
  check_cells(one->region, a);  // if it is not ordered with what freed the memory, that is the mistake
  if (!the_check.pending) report(Detail::after_free, one, a);
  return true;
}

void note_heap(Finding& f) {
  const Allocation& one = heap.at(reinterpret_cast<const char*>(f.start));
  f.heap_bytes = one.bytes;
  f.heap_pc = one.pc;
}

void check_allocated(char* p, size_t bytes, const void* pc) {
  memset(p, 0xff, bytes);
  auto* cells = static_cast<Cell*>(calloc((bytes >> 2) + 1, sizeof(Cell)));
  Region region = {p, bytes, Memory::heap, 0, 2, cells};
  region.is_plain = true;
  heap[p] = {region, bytes, pc_of(pc), {}};
}

void check_release(char* p, const void* pc) {
  const Access a = {p, 1, true, Manner::plain, pc_of(pc)};
  the_check.last_pc = a.pc;
  const auto found = heap.find(p);
  if (found == heap.end()) report(Detail::not_allocated, nullptr, a);
  Allocation& one = found->second;
  if (one.is_freed) report(Detail::freed_twice, &one, a);
  // What others did is ordered before
  if (one.bytes) check_cells(one.region, {p, one.bytes, true, Manner::plain, a.pc});
  one.is_freed = true;
  one.freed_by = {true, 0, linear_thread, the_check.block, a.pc};
  one.region.bytes = one.region.whole = 0;
  freed_bytes += bytes_with_cells(one);
}

bool keep_freed(char*) {
  if (freed_bytes > MOST_FREED) forget_freed();
  return true;
}

void forget_freed() {
  std::erase_if(heap, [](const auto& each) {
    if (each.second.is_freed) drop(each.second);
    return each.second.is_freed;
  });
  freed_bytes = 0;
  std::fill(std::begin(the_check.recent), std::end(the_check.recent), nullptr);
}

}  // namespace emulator
