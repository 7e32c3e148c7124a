// The state of checked mode, and the functions by which the host sets it.
#include "order.h"
#include "unset.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "../scheduler.h"

namespace emulator {

Check the_check;

namespace {

std::vector<FarRead> far_reads[MAX_CLUSTER];

bool has_halves(const Check& c, int array) { return c.halves_of == c.target.base && c.halves[array]; }

// The cells of a block's shared arrays.
void place_shared(Check& c) {
  auto is_of_block = [&c](const Region& r) { return r.start >= c.shared_start && r.start < c.shared_end; };
  size_t count = 0;
  for (Region& r : c.regions) {
    if (!is_of_block(r)) continue;
    r.shift = has_halves(c, r.index) ? 1 : 2;
    r.mask = (size_t(1) << r.shift) - 1;
    r.whole = r.bytes >> r.shift;
    r.first_cell = count;
    count += (r.bytes >> r.shift) + 1;
  }
  c.shared_count = count;
  c.more_halves = false;
  c.shared_cells[c.rank].resize(count);
  if (c.many) far_reads[c.rank].resize(count);
  for (Region& r : c.regions) {
    if (!is_of_block(r)) continue;
    r.cells = c.shared_cells[c.rank].data() + r.first_cell;
    r.far = c.many ? far_reads[c.rank].data() + r.first_cell : nullptr;
  }
}

// For this thread, whose block has that rank.
void add_shared(Check& c, unsigned shared_bytes) {
  c.shared_start = c.shared_end = nullptr;
  if (!c.target.shared_count) return;
  char* anchor = c.target.anchor();
  for (int i = 0; i < c.target.shared_count; i++) {
    const SharedArray& a = c.target.shared[i];
    const size_t bytes = a.bytes < 0 ? shared_bytes : size_t(a.bytes);
    const Memory memory = a.is_array ? Memory::shared : Memory::unknown;
    c.regions.push_back({anchor + a.offset, bytes, memory, i, 2, nullptr, c.rank, false, nullptr});
  }
  auto by_start = [](const Region& a, const Region& b) { return a.start < b.start; };
  auto first = c.regions.end() - c.target.shared_count;
  std::sort(first, c.regions.end(), by_start);
  c.shared_start = first->start;
  c.shared_end = c.regions.back().start + c.regions.back().bytes + (64 << 10);  // what exceeds the last one
  place_shared(c);
}

// The addresses of the words that the runtime keeps for its thread and that kernels read.
void find_words(Check& c) {
  const std::initializer_list<std::pair<const void*, size_t>> all = {{&threadIdx, sizeof threadIdx},
                                                                     {&blockIdx, sizeof blockIdx},
                                                                     {&blockDim, sizeof blockDim},
                                                                     {&gridDim, sizeof gridDim},
                                                                     {&linear_thread, sizeof linear_thread}};
  c.words = static_cast<const char*>(std::min(all).first);
  for (auto [word, bytes] : all)
    c.words_bytes = std::max(c.words_bytes, size_t(static_cast<const char*>(word) + bytes - c.words));
}

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

uint32_t new_epoch(unsigned rank) {
  Check& c = the_check;
  c.clock++;
  if (c.many) c.ranks.push_back(rank);
  const uint64_t block = block_check(rank).block;
  if (c.owners.empty() || c.owners.back().block != block) c.owners.push_back({c.clock, block});
  return c.clock;
}

void begin_epoch(unsigned rank) {
  BlockCheck& b = block_check(rank);
  b.epoch = new_epoch(rank);
  b.forget_tokens();
  if (!the_check.many && !the_check.mixed) the_check.ordered_epoch = b.epoch;
}

void mark_far_regions() {
  for (Region& r : the_check.regions) {
    r.is_far = r.memory == Memory::shared && r.rank != the_check.rank;
    r.is_plain = r.cells && !r.is_far && !r.read_only;
  }
}

// Called for each block of a cluster, one after the other; otherwise once.
void check_launch_started(Worker& w, unsigned shared_bytes) {
  Check& c = the_check;
  if (!w.cluster || w.cluster->gathered == 0) {
    c.regions.clear();
    for (const Region& r : c.watched)
      if (r.memory == Memory::global || (r.start >= c.target.data_start && r.start < c.target.data_end))
        c.regions.push_back(r), c.regions.back().read_only = std::ranges::count(c.read_only, r.start);
    const unsigned blocks = w.cluster ? w.cluster->size : 1;
    start_schedule(uint64_t(gridDim.x) * gridDim.y * gridDim.z / blocks, w.total);
    c.many = c.several = w.cluster;
    c.owners.clear();
    c.ranks.clear();
    c.launch_epoch = ++c.clock;
    begin_launch_order();
    c.fenced = c.mixed = false;
    forget_messages();
    forget_freed();
  }
  static_cast<BlockCheck&>(c) = {};
  c.rank = w.rank;
  c.order = take_order(w.rank);  // those of suspended blocks come after them
  add_shared(c, shared_bytes);
  std::sort(c.regions.begin(), c.regions.end(), [](const Region& a, const Region& b) { return a.start < b.start; });
  mark_far_regions();
  std::fill(std::begin(c.recent), std::end(c.recent), nullptr);
  c.active = true;
  if (!w.stacks) give_fiber(w, take_fiber(w, nullptr));  // so that the place of the stacks is known
  c.stacks = w.stacks;
  find_words(c);
  c.aside[w.rank] = c;
}

void check_numbers(bool on) { on ? watch_unset() : unwatch_unset(); }

void check_launch_ended() { the_check.active = false; }

void check_block_started() {
  Check& c = the_check;
  if (!c.mixed) start_steps();
  if (c.more_halves && !c.several && c.shared_start) {
    for (Cell& cell : c.shared_cells[0]) drop_parts(cell);
    place_shared(c);
  }
  if (c.many) return;  // check_cluster_started
  if (!c.mixed) begin_ahead();
  c.block = linear(blockIdx);
  begin_epoch(0);
  c.cluster_epoch = c.epoch;
  order_block_started(c.order);
}

void check_block_barrier() {
  Check& c = the_check;
  give_up_pending();
  order_block_met();
  meet_wait(0, this_worker->total);
  begin_epoch(c.rank);
}

void check_block_ended(Worker& w) {
  look_at_write();
  if (the_check.mixed) start_steps();
  if (w.failure.kind != FailureKind::none || w.abandoned) return;
  if (the_check.pending) {
    the_check.pending = false;
    w.failure.kind = FailureKind::finding;
  } else if (the_check.many) {
    check_member_ended(w);
  }
}

void check_warp_barrier(unsigned warp, unsigned mask) {
  the_check.warp_masks[warp] = mask;
  order_warp_met(warp);
  meet_wait(warp * WARP, WARP);
  the_check.warp_epochs[warp] = new_epoch(the_check.rank);
  the_check.tokens[warp] = NO_TOKEN;
}

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
