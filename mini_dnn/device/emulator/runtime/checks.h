// Calls by which the runtime informs the checks of checked mode (checked/). In the fast runtime they do nothing.
#pragma once
#include "worker.h"

namespace emulator {

#ifdef EMULATOR_CHECKED
// After a barrier, threads continue in the order of the schedule, not the last one first
constexpr bool CHECKED = true;
void check_launch_started(Worker& worker, unsigned shared_bytes);
void check_launch_ended();
void check_numbers(bool on);      // the use of uninitialised ones
void check_call(Worker& worker);  // runs the kernel as one thread
void check_block_started();
void check_block_ended(Worker& worker);  // may set worker.failure
void check_freed(char* memory);          // a buffer
size_t heap_margin(size_t bytes);        // belongs to nobody, before and after heap memory
void check_allocated(char* p, size_t bytes, const void* pc);
void check_release(char* p, const void* pc);  // ends the launch if it must not be freed
bool keep_freed(char* p);                     // whether its memory stays, so that later accesses are noticed
void check_block_suspended(Worker& worker);
void check_block_chosen(Worker& worker, bool begins);                 // or continues after a suspension
void check_block_barrier();                                           // all threads of the block have met
void check_warp_arrival(unsigned mask, const char* name, Site site);  // of a lane at a __syncwarp
void check_warp_barrier(unsigned warp, unsigned mask);                // lanes of that warp have met
uint64_t check_block_count(uint64_t blocks);                          // how many of them run
uint64_t check_block_order(uint64_t i);                               // which block runs as the i-th
unsigned check_thread_order(unsigned i);                              // and which thread of a block
void check_steps(unsigned count);      // this many threads met: ends a block that does not end
void check_yield(Fiber* fiber);        // others run before this one, although it does not wait
void check_cancelled(Worker& worker);  // by a signal in the middle of a kernel
void check_ready_order(Queue& ready);  // may change the order in which threads continue after a barrier
void check_cluster_started(Cluster& cluster);
void check_turn_taken(Worker& worker);  // this block of a cluster continues
void check_cluster_barrier(bool releases);
unsigned check_turn(unsigned i, unsigned count);                    // which of the other blocks is tried as the i-th
void check_own_shared(const void* p, const char* what, Site site);  // ends the launch if it is elsewhere
#else
constexpr bool CHECKED = false;
inline void check_launch_started(Worker&, unsigned) {}
inline void check_launch_ended() {}
inline void check_numbers(bool) {}
inline void check_call(Worker& worker) { worker.run(worker.arguments); }
inline void check_block_started() {}
inline void check_block_ended(Worker&) {}
inline void check_freed(char*) {}
inline size_t heap_margin(size_t) { return 0; }
inline void check_allocated(char*, size_t, const void*) {}
inline void check_release(char*, const void*) {}
inline bool keep_freed(char*) { return false; }
inline void check_block_suspended(Worker&) {}
inline void check_block_chosen(Worker&, bool) {}
inline void check_block_barrier() {}
inline void check_warp_arrival(unsigned, const char*, Site) {}
inline void check_warp_barrier(unsigned, unsigned) {}
inline uint64_t check_block_count(uint64_t blocks) { return blocks; }
inline uint64_t check_block_order(uint64_t i) { return i; }
inline unsigned check_thread_order(unsigned i) { return i; }
inline void check_steps(unsigned) {}
inline void check_yield(Fiber*) {}
inline void check_cancelled(Worker&) {}
inline void check_ready_order(Queue&) {}
inline void check_cluster_started(Cluster&) {}
inline void check_turn_taken(Worker&) {}
inline void check_cluster_barrier(bool) {}
inline unsigned check_turn(unsigned i, unsigned) { return i; }
inline void check_own_shared(const void*, const char*, Site) {}
#endif

void start_heap();  // of a launch

}  // namespace emulator
