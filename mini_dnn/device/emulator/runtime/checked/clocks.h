// What waits for mbarriers order. A thread that arrives passes on what it did and what it knows, and a thread that
// waits for the phase learns that. For each thread, a clock says up to when it knows what others did.
//
// The copies that an mbarrier counts are known to the threads that wait for it. In clocks and as the writer of a cell,
// each mbarrier of a block is therefore one more thread of the block. An arrival from another block is relaxed: it
// tells what was read, so that it may be overwritten, but not what was written. Barriers of the block or cluster order
// everything older, so clocks say nothing about that.
#pragma once
#include <memory>

#include "../async.h"
#include "order.h"

namespace emulator {

// LANDED + i as a writer: the copies that the i-th mbarrier of the block counts.
constexpr uint16_t LANDED = MAX_THREADS;

using Times = std::vector<uint32_t>;  // everything older is known

struct Clock {
  Times acts;   // of each thread of the block and of its mbarriers
  Times reads;  // of each thread of the cluster: only what it read
  bool after_grid_wait = false;
  Knowledge flags;

  bool covers(uint16_t who, uint32_t epoch) const {
    const unsigned at = who < LANDED ? who : this_worker->total + (who - LANDED);
    return at < acts.size() && epoch < acts[at];
  }
};
using SharedClock = std::shared_ptr<const Clock>;  // threads that wait together know the same

struct BlockClocks {
  bool used = false;  // by an mbarrier or a product of the block
  SharedClock known[MAX_THREADS];
  uint32_t made[MAX_THREADS / WARP] =
      {};  // of each warp: until when it read, at the latest, for products that are made
  uint32_t waited[MAX_THREADS / WARP][4] = {};  // of each warp: the same for its warpgroup, when it waited last
  std::vector<const void*> mbarriers;           // their addresses

  uint32_t read_until(unsigned warp) const { return waited[warp][warp % 4]; }  // for products that it has waited for
};

// The clocks of one block, by its slot.
BlockClocks* take_clocks(unsigned slot);
void clocks_block_started(BlockClocks& clocks);
void clocks_block_met(BlockClocks& clocks);    // at a barrier of the block
void clocks_cluster_met(BlockClocks& clocks);  // at one of the cluster that orders memory
void clocks_warp_met(unsigned warp);
void note_product_made(unsigned warp, uint32_t started);
void note_product_waited(unsigned warp);
void begin_later();                        // what this thread's warp does from now on is later than everything so far
unsigned number_of(const void* mbarrier);  // in this block
uint16_t lander_of(const Barrier& barrier);
SharedClock known_now();  // to this thread

// Whether some thread of this block knows what a thread of another block read then.
bool some_know(unsigned thread, uint32_t epoch);

// Whether this thread knows, by mbarriers, what `who` of the block that owns the epoch did then.
inline bool knows(uint16_t who, uint32_t epoch, bool read) {
  const Check& c = the_check;
  const Clock* const clock = c.clocks->known[linear_thread].get();
  if (!clock) return false;
  if (clock->covers(who, epoch) && is_mine(epoch)) return true;
  const size_t at = rank_of(epoch) * this_worker->total + who;
  return read && at < clock->reads.size() && epoch < clock->reads[at] && (c.many || is_mine(epoch));
}

}  // namespace emulator
