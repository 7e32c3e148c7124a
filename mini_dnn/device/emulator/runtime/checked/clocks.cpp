#include "clocks.h"

#include <algorithm>

#include "access.h"

namespace emulator {

namespace {

std::vector<std::unique_ptr<BlockClocks>> all_clocks;

// Each time is at least that of the other clock. Returns whether any of them changes.
bool advance(Times& to, const Times& other) {
  if (to.size() < other.size()) to.resize(other.size());
  uint32_t changed = 0;
  for (size_t i = 0; i < other.size(); i++) {
    const uint32_t later = std::max(to[i], other[i]);
    changed |= later ^ to[i];
    to[i] = later;
  }
  return changed;
}

bool advance(Clock& to, const Clock& other) {
  bool changed = advance(to.acts, other.acts);
  changed |= advance(to.reads, other.reads);
  changed |= other.after_grid_wait && !to.after_grid_wait;
  to.after_grid_wait |= other.after_grid_wait;
  for (const Told& told : other.flags) changed |= add(to.flags, told);
  return changed;
}

// What one knows and the other. Threads that wait together have the same question.
SharedClock joined(const SharedClock& one, const SharedClock& other) {
  if (!other || one == other) return one;
  if (!one) return other;
  static struct {
    SharedClock one, other, both;
  } last;
  if (one == last.one && other == last.other) return last.both;
  auto both = std::make_shared<Clock>(*one);
  last = {one, other, advance(*both, *other) ? both : one};
  return last.both;
}

void later(uint32_t& time, uint32_t at_least) { time = std::max(time, at_least); }

// What this thread did itself, and its warp until its lanes last met. For reads, also until it started a product that
// it has waited for.
template <class Note>
void each_own(bool read, Note note) {
  const Check& c = the_check;
  const unsigned warp = linear_thread / WARP, end = std::min<unsigned>(warp * WARP + WARP, this_worker->total);
  const uint32_t met = std::max(c.warp_epochs[warp], read ? c.clocks->read_until(warp) : 0);
  for (unsigned i = warp * WARP; i < end; i++) note(i, i == linear_thread ? now() + 1 : met);
}

// The four warps of a warpgroup make a product together: when the wait of one returns, all have read their operands,
// and what they read before they started it.
void pass_on_products(Clock& arrived) {
  const Check& c = the_check;
  const unsigned total = this_worker->total, warp = linear_thread / WARP, first = warp / 4 * WARPGROUP;
  if (!c.clocks->read_until(warp)) return;
  arrived.reads.resize((c.many ? this_worker->cluster->size : 1) * total);
  for (unsigned i = 0; i < WARPGROUP; i++)
    later(arrived.reads[c.rank * total + first + i], c.clocks->waited[warp][i / WARP]);
}

void pass_on_acts(Clock& arrived) {
  if (arrived.acts.size() < this_worker->total) arrived.acts.resize(this_worker->total);
  each_own(false, [&](unsigned i, uint32_t time) { later(arrived.acts[i], time); });
}

void pass_on_reads(Clock& arrived, const Clock* known) {
  const Check& c = the_check;
  const unsigned total = this_worker->total;
  arrived.reads.resize(this_worker->cluster->size * total);
  uint32_t* const reads = &arrived.reads[c.rank * total];
  for (unsigned i = 0; i < total; i++)
    later(reads[i], known && i < known->acts.size() ? std::max(c.epoch, known->acts[i]) : c.epoch);
  each_own(true, [&](unsigned i, uint32_t time) { later(reads[i], time); });
  if (known) advance(arrived.reads, known->reads);
}

unsigned rank_of(const Barrier& b) { return the_check.many ? b.block->rank : the_check.rank; }

}  // namespace

BlockClocks* take_clocks(unsigned slot) {
  while (all_clocks.size() <= slot) all_clocks.push_back(std::make_unique<BlockClocks>());
  return all_clocks[slot].get();
}

void clocks_block_started(BlockClocks& clocks) {
  if (clocks.used) clocks = {};
}

void clocks_block_met(BlockClocks& clocks) {
  if (!clocks.used) return;
  SharedClock all;
  if (the_check.many)
    for (unsigned i = 0; i < this_worker->total; i++) all = joined(all, clocks.known[i]);
  std::fill_n(clocks.known, this_worker->total, all);
}

void clocks_cluster_met(BlockClocks& clocks) {
  if (clocks.used) std::fill_n(clocks.known, this_worker->total, nullptr);
}

void clocks_warp_met(unsigned warp) {
  BlockClocks& clocks = *the_check.clocks;
  if (!clocks.used) return;
  SharedClock* const first = clocks.known + warp * WARP;
  const unsigned count = std::min<unsigned>(WARP, this_worker->total - warp * WARP);
  SharedClock all = first[0];
  for (unsigned i = 1; i < count; i++)
    if (first[i] != first[i - 1]) all = joined(all, first[i]);
  std::fill_n(first, count, all);
}

void note_product_made(unsigned warp, uint32_t started) {
  BlockClocks& clocks = *the_check.clocks;
  clocks.used = true;
  later(clocks.made[warp], started + 1);
}

void note_product_waited(unsigned warp) {
  BlockClocks& clocks = *the_check.clocks;
  std::copy_n(clocks.made + warp / 4 * 4, 4, clocks.waited[warp]);
}

void begin_later() {
  Check& c = the_check;
  c.arrivals[linear_thread / WARP] = new_epoch(c.rank);
  c.token = c.tokens[linear_thread / WARP] = NO_TOKEN;
}

unsigned number_of(const void* mbarrier) {
  BlockClocks& clocks = *the_check.clocks;
  clocks.used = true;
  const auto found = std::ranges::find(clocks.mbarriers, mbarrier);
  const unsigned number = found - clocks.mbarriers.begin();
  if (found == clocks.mbarriers.end()) clocks.mbarriers.push_back(mbarrier);
  return number;
}

uint16_t lander_of(const Barrier& b) { return LANDED + b.notes.number; }

SharedClock known_now() { return the_check.clocks->known[linear_thread]; }

bool some_know(unsigned thread, uint32_t epoch) {
  const unsigned at = rank_of(epoch) * this_worker->total + thread;
  const SharedClock* const known = the_check.clocks->known;
  return std::any_of(known, known + this_worker->total,
                     [&](const SharedClock& k) { return k && at < k->reads.size() && epoch < k->reads[at]; });
}

void check_arrived(Barrier& b) {
  Check& c = the_check;
  BarrierNotes& n = b.notes;
  if (!n.arrived) n.arrived = std::make_shared<Clock>();
  const SharedClock& known = c.clocks->known[linear_thread];
  if (c.many && b.block != this_worker) {
    note_far_arrival(b);
    pass_on_reads(*n.arrived, known.get());
    pass_on_products(*n.arrived);
  } else {
    if (known && known != n.passed_on) advance(*n.arrived, *known), n.passed_on = known;
    pass_on_acts(*n.arrived);
    pass_on_products(*n.arrived);
    for (const Told& told : flags_seen(*c.order, linear_thread)) add(n.arrived->flags, told);
  }
  n.arrived->after_grid_wait |= !is_ahead();
  begin_later();  // what it does from now on is not before the arrival
}

void check_phase_completed(Barrier& b) {
  const unsigned rank = rank_of(b), at = lander_of(b) - LANDED + this_worker->total;
  if (rank == the_check.rank) give_up_pending();
  Times& acts = b.notes.arrived->acts;
  if (acts.size() <= at) acts.resize(at + 1);
  acts[at] = new_epoch(rank);
  b.notes.complete = std::make_shared<const Clock>(*b.notes.arrived);
}

void check_waited(Barrier& b, unsigned thread) {
  b.notes.waited = b.phase;
  const SharedClock& complete = b.notes.complete;
  if (!complete) return;
  const unsigned rank = rank_of(b);
  const BlockCheck& block = block_check(rank);
  SharedClock& known = block.clocks->known[thread];
  known = joined(known, complete);
  if (complete->after_grid_wait) follow_thread(rank, thread);
  for (const Told& told : complete->flags) learn_flag(*block.order, thread, told);
}

}  // namespace emulator
