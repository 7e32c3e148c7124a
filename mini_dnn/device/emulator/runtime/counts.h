// Calls by which the runtime informs the counters of counted mode (counted/). In all other builds they do nothing.
#pragma once
#include "worker.h"

namespace emulator {

#ifdef EMULATOR_COUNTED
constexpr bool COUNTED = true;
void count_launch_started(Worker& worker, const Module& module, unsigned shared_bytes);
void count_launch_ended(Worker& worker);
void count_block_started(Worker& worker);
void count_block_barrier(Worker& worker);            // all threads of the block have met
void count_warp_met(Worker& worker, unsigned warp);  // lanes of that warp have met
void count_thread_ended(Worker& worker, unsigned thread);
// For the current thread, at the return address `pc`.
void count_barrier(const char* name, const void* pc);                        // arrives at a barrier of the block
void count_warp_operation(unsigned mask, const char* name, const void* pc);  // waits for these lanes
void count_copy(const void* pc, const void* global, const void* shared, unsigned bytes, bool store);
// Everything else that has a name
void count_event(const char* name, const void* pc, const void* address, unsigned number);
#else
constexpr bool COUNTED = false;
inline void count_launch_started(Worker&, const Module&, unsigned) {}
inline void count_launch_ended(Worker&) {}
inline void count_block_started(Worker&) {}
inline void count_block_barrier(Worker&) {}
inline void count_warp_met(Worker&, unsigned) {}
inline void count_thread_ended(Worker&, unsigned) {}
inline void count_barrier(const char*, const void*) {}
inline void count_warp_operation(unsigned, const char*, const void*) {}
inline void count_copy(const void*, const void*, const void*, unsigned, bool) {}
inline void count_event(const char*, const void*, const void*, unsigned) {}
#endif

}  // namespace emulator
