// What orders accesses besides barriers: a thread's fence, then a flag that it sets, then a thread that has seen the
// flag. What came before the fence then comes before all that this thread does from there on, and so do things that
// the first one had learned itself.
//
// CUDA's memory model asks for a fence after the flag is seen, too; programs leave it out, and this does not ask for
// it.
#pragma once
#include "shadow.h"

namespace emulator {

enum class Scope : int { block, device };

// Of one block; nullptr for none.
BlockOrder* take_order(unsigned slot);
void forget_messages();                       // a launch begins
void order_block_started(BlockOrder* order);  // of a block that begins
void order_block_met();                       // its threads, at a barrier
void order_warp_met(unsigned warp);
void note_fence(Scope scope);

// Whether a store of this thread hands something over: a fence came right before it. It counts as stored.
bool takes_fence(uint32_t time);
void note_flag_set(const char* p, bool shared, bool update);  // by an atomic, or right after a fence
void note_flag_seen(const char* p, bool shared);
// Whether this thread has seen a flag since that tells it of what thread `who` of a block did at that time there.
bool has_learned(uint64_t block, uint16_t who, uint32_t time, const char* p);

}  // namespace emulator
