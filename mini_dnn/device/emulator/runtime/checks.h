// What the runtime tells the checks of checked mode (checked/). In the fast runtime these are nothing at all.
#pragma once
#include "worker.h"

namespace emulator {

#ifdef EMULATOR_CHECKED
void check_launch_started(Worker& worker, unsigned shared_bytes);
void check_launch_ended();
void check_block_started();
void check_block_ended(Worker& worker);  // may set worker.failure
void check_freed(char* memory);          // a buffer
void check_block_barrier();              // all threads of the block have met
void check_warp_barrier(unsigned warp);  // lanes of that warp have met
#else
inline void check_launch_started(Worker&, unsigned) {}
inline void check_launch_ended() {}
inline void check_block_started() {}
inline void check_block_ended(Worker&) {}
inline void check_freed(char*) {}
inline void check_block_barrier() {}
inline void check_warp_barrier(unsigned) {}
#endif

}  // namespace emulator
