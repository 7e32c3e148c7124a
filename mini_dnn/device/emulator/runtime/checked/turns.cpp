// Blocks that are suspended while others run (../turns.h): the state of each is put aside.
#include <algorithm>
#include <unordered_map>

#include "clocks.h"
#include "flights.h"

namespace emulator {

namespace {

struct Aside {
  unsigned number;
  BlockCheck check;
  std::vector<Cell> cells;  // of its shared memory
  Flights flights = {};
  std::shared_ptr<Fences> fences = {};
};
std::unordered_map<const Worker*, Aside> asides;
std::vector<std::vector<Cell>> spare;

Aside& aside_of(Worker& w) { return asides.try_emplace(&w, Aside{unsigned(asides.size()), {}, {}}).first->second; }

void exchange_copies(Aside& a) {
  std::swap(flights, a.flights);
  std::swap(fences, a.fences);
  copies_under_way = true;  // perhaps
}

// Cells that no block uses any more are reused before new ones are created.
void use_cells(std::vector<Cell> cells) {
  Check& c = the_check;
  auto& used = c.shared_cells[0];
  if (!used.empty()) spare.push_back(std::move(used));
  used = std::move(cells);
  for (Region& r : c.regions)
    if (r.start >= c.shared_start && r.start < c.shared_end) r.cells = used.data() + r.first_cell;
}

}  // namespace

void check_block_suspended(Worker& w) {
  Check& c = the_check;
  Aside& a = aside_of(w);
  a.check = c;
  exchange_copies(a);
  a.cells = std::move(c.shared_cells[0]);
  c.shared_cells[0].clear();
  c.mixed = c.several = true;
  c.ordered_epoch = 0;
}

// From then on, steps count for all blocks together: one of them must make progress.
void check_block_chosen(Worker& w, bool begins) {
  Check& c = the_check;
  Aside& a = aside_of(w);
  const uint64_t steps = c.steps, pause = c.pause;
  if (begins) {
    BlockCheck fresh;
    fresh.shared_start = c.shared_start, fresh.shared_end = c.shared_end;
    fresh.words = c.words, fresh.words_bytes = c.words_bytes;
    fresh.stacks = w.stacks;
    fresh.order = take_order(MAX_CLUSTER + a.number);
    fresh.clocks = take_clocks(MAX_CLUSTER + a.number);
    static_cast<BlockCheck&>(c) = fresh;
    std::vector<Cell> cells;
    if (!spare.empty()) cells = std::move(spare.back()), spare.pop_back();
    if (c.shared_start) cells.resize(std::max(cells.size(), c.shared_count));
    use_cells(std::move(cells));
  } else {
    static_cast<BlockCheck&>(c) = a.check;
    use_cells(std::move(a.cells));
    exchange_copies(a);
    new_epoch(0);
  }
  c.steps = steps;
  c.pause = pause;
}

}  // namespace emulator
