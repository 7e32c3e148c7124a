// The functions by which the host sets and reads the state of checked mode.
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "order.h"

namespace emulator {

namespace {

size_t cell_bytes(size_t bytes, int shift) { return ((bytes >> shift) + 1) * sizeof(Cell); }

// Forgets arrays that start in a range of memory.
void unwatch(char* start, char* end) {
  std::erase_if(the_check.watched, [&](const Region& r) {
    const bool gone = r.start >= start && r.start < end;
    if (gone && r.sparse) {
      munmap(r.cells, cell_bytes(r.bytes, r.shift));
    } else if (gone) {
      for (size_t i = 0; i <= r.bytes >> r.shift; i++) drop_parts(r.cells[i]);
      free(r.cells);
    }
    return gone;
  });
}

}  // namespace

void check_freed(char* memory) { unwatch(memory, memory + 1); }

}  // namespace emulator

using namespace emulator;

#pragma GCC visibility push(default)
extern "C" {

int emulator_is_checked() { return 1; }

// Adds a buffer or a variable whose elements have `unit` bytes.
void emulator_watch(char* start, size_t bytes, int unit, int is_symbol) {
  const int shift = unit >= 4 ? 2 : unit == 2 ? 1 : 0;
  auto* cells = static_cast<Cell*>(calloc((bytes >> shift) + 1, sizeof(Cell)));
  the_check.watched.push_back({start, bytes, is_symbol ? Memory::symbol : Memory::global, 0, shift, cells});
}

// Adds a buffer of which only some pages are ever touched. Returns 0 if there are no addresses left.
int emulator_watch_sparse(char* start, size_t bytes, int unit) {
  const int shift = unit >= 4 ? 2 : unit == 2 ? 1 : 0;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* cells = mmap(nullptr, cell_bytes(bytes, shift), PROT_READ | PROT_WRITE, flags, -1, 0);
  if (cells == MAP_FAILED) return 0;
  Region region = {start, bytes, Memory::global, 0, shift, static_cast<Cell*>(cells)};
  region.sparse = true;
  the_check.watched.push_back(region);
  return 1;
}

// Removes variables of a module that no longer exists.
void emulator_unwatch(char* start, char* end) { unwatch(start, end); }

// The host has written to memory, or (`known` 0) filled it with values that no kernel should read.
void emulator_host_wrote(char* start, size_t bytes, int known) {
  for (Region& r : the_check.watched) {
    if (start < r.start || start >= r.start + r.bytes || r.sparse) continue;
    const size_t first = (start - r.start) >> r.shift;
    const size_t last = (start - r.start + std::min(bytes, size_t(r.start + r.bytes - start)) - 1) >> r.shift;
    for (size_t i = first; i <= last; i++) {
      drop_parts(r.cells[i]);
      r.cells[i].write_epoch = known ? BY_HOST : NEVER;
    }
  }
}

// How the last launch used each piece of an array, in stream_order.py's numbers. Returns whether it used the array.
int emulator_touched(char* start, unsigned char* pieces, size_t count) {
  const uint32_t since = the_check.launch_epoch;
  auto how = [since](const Cell& cell) -> unsigned char {
    if (cell.write_epoch >= since) return cell.write_manner == Manner::atomic ? 3 : 4;
    if (cell.read_epoch >= since) return cell.read_manner == Manner::atomic ? 1 : 2;
    return 0;
  };
  bool any = false;
  for (const Region& r : the_check.watched) {
    if (r.start != start) continue;
    for (size_t i = 0; i < count; i++) {
      pieces[i] = most_of(r.cells[i], how);
      any |= pieces[i];
    }
  }
  return any;
}

// The last epoch.
uint32_t emulator_now() { return the_check.clock; }

// Treats what kernels have written since then as unwritten. Variables always have values.
void emulator_forget(uint32_t since) {
  for (Region& r : the_check.watched) {
    r.forgotten = true;
    for (size_t i = 0; i < (r.bytes + r.mask) >> r.shift; i++) {
      Cell& cell = r.cells[i];
      const uint32_t last = most_of(cell, [](const Cell& c) { return c.write_epoch; });
      drop_parts(cell);
      cell.write_epoch = last > since ? NEVER : last == NEVER && r.memory == Memory::symbol ? BY_HOST : last;
    }
  }
}

void emulator_target(const Target* target) {
  the_check.target = *target;
  the_check.read_only.clear();
  start_calls();
}

// A buffer that the next launch receives twice: by a read-only pointer, and by another one.
void emulator_read_only(const char* start) { the_check.read_only.push_back(start); }

// Where the library that contains an address begins.
uint64_t emulator_base(void* address) {
  Dl_info info;
  return dladdr(address, &info) ? reinterpret_cast<uint64_t>(info.dli_fbase) : 0;
}

// How many shuffle calls have left a value undefined since they were forgotten, and one of these calls.
int emulator_undefined(int which, Failure* failure) {
  const auto& all = the_check.undefined;
  if (which < int(all.size())) *failure = all[which].found;
  return int(all.size());
}
void emulator_forget_undefined() { the_check.undefined.clear(); }
void emulator_vary_undefined(int which) { the_check.varied = which; }

void emulator_finding(Finding* finding) {
  *finding = the_check.finding;
  if (finding->kind == FindingKind::none) finding->own.pc = the_check.last_pc;  // of an access that faulted
}
}
#pragma GCC visibility pop
