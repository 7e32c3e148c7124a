// Threads that wait in a loop for writes of others are interrupted, so that these run: a GPU promises progress to all
// threads of a block. In checked mode this happens at an access. The fast mode has nothing but a signal.
#pragma once
#include "worker.h"

namespace emulator {

#if defined(__x86_64__) && !defined(EMULATOR_CHECKED)
constexpr bool PREEMPTS = true;
#else
constexpr bool PREEMPTS = false;
#endif

void watch_kernel(const void* code);  // of a launch: only code of its library is interrupted
void install_preemption();            // while a launch runs
void restore_preemption();

}  // namespace emulator
