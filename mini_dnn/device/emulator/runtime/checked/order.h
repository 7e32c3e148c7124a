// What orders accesses besides barriers: a thread's fence, then a flag that it sets, then a thread that has seen the
// flag. Everything before the fence is then ordered before everything that the second thread does from then on. That
// includes what the first thread had learned itself.
//
// CUDA's memory model also requires a fence after the flag has been seen. Programs leave it out, so it is not required
// here.
#pragma once
#include "shadow.h"

namespace emulator {

struct Flag;
// Messages of a flag, from `first` on and before `last`, that a thread of a block has read.
struct Told {
  const Flag* flag;
  uint32_t first, last;
};
using Knowledge = std::vector<Told>;
bool add(Knowledge& to, const Told& more);  // whether that is new

enum class Scope : int { block, device };

// The order of one block, by its slot. It is created on first use.
BlockOrder* take_order(unsigned slot);
void forget_messages();                       // a launch begins
void order_block_started(BlockOrder* order);  // at the beginning of a block
void order_block_met();                       // its threads, at a barrier
void order_warp_met(unsigned warp);
const Knowledge& flags_seen(const BlockOrder& order, unsigned thread);  // since the last barrier of the block
void learn_flag(BlockOrder& order, unsigned thread, const Told& told);  // by an mbarrier
void note_fence(Scope scope);

// Whether a store of this thread publishes something: a fence came directly before it. It counts as stored.
bool takes_fence(uint32_t time);
void note_flag_set(const char* p, bool shared, bool update);  // by an atomic, or directly after a fence
void note_flag_seen(const char* p, bool shared);
// Whether this thread has since seen a flag that orders what thread `who` of a block did at that time before it.
bool has_learned(uint64_t block, uint16_t who, uint32_t time, const char* p);

}  // namespace emulator
