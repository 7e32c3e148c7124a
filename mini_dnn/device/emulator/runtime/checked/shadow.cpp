// The state of checked mode; host.cpp has the functions by which the host sets it.
#include "clocks.h"
#include "unset.h"

#include <algorithm>
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
  // And what exceeds the last one, but no further than this thread's memory: another block's may come next.
  const OwnMemory own = own_memory(reinterpret_cast<const void*>(this_worker->run));
  c.shared_end = std::min(c.regions.back().start + c.regions.back().bytes + (64 << 10), own.start + own.bytes);
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

}  // namespace

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
  look_at_write();  // this and the next line forget those of a launch that failed
  copy_starts = false;
  c.rank = w.rank;
  c.order = take_order(w.rank);  // those of suspended blocks come after them
  c.clocks = take_clocks(w.rank);
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
  c.exited = 0;
  order_block_started(c.order);
  clocks_block_started(*c.clocks);
}

void check_block_barrier() {
  Check& c = the_check;
  give_up_pending();
  c.exited = this_worker->total - this_worker->alive;
  order_block_met();
  clocks_block_met(*c.clocks);
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
  clocks_warp_met(warp);
  meet_wait(warp * WARP, WARP);
  the_check.warp_epochs[warp] = new_epoch(the_check.rank);
  the_check.tokens[warp] = NO_TOKEN;
}

}  // namespace emulator
