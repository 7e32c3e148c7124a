// What orders accesses besides barriers: a thread's fence, then a flag that it sets, then a thread that has seen the
// flag. Everything before the fence is then ordered before everything that the second thread does from then on. That
// includes what the first thread had learned itself.
//
// CUDA's memory model also requires a fence after the flag has been seen. Programs leave it out, so it is not required
// here.
#pragma once
#include "shadow.h"

namespace emulator {

enum class Scope : int { block, device };

// The order of one block, by its slot. It is created on first use.
BlockOrder* take_order(unsigned slot);
void forget_messages();                       // a launch begins
void order_block_started(BlockOrder* order);  // at the beginning of a block
void order_block_met();                       // its threads, at a barrier
void order_warp_met(unsigned warp);
void order_phase_completed();  // of an mbarrier of the block: all of its threads know what one of them has learned
void note_fence(Scope scope);

// Whether a store of this thread publishes something: a fence came directly before it. It counts as stored.
bool takes_fence(uint32_t time);
void note_flag_set(const char* p, bool shared, bool update);  // by an atomic, or directly after a fence
void note_flag_seen(const char* p, bool shared);
// Whether this thread has since seen a flag that orders what thread `who` of a block did at that time before it.
bool has_learned(uint64_t block, uint16_t who, uint32_t time, const char* p);

}  // namespace emulator
