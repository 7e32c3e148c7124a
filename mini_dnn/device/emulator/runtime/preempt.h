// Threads that wait in a loop for what others write are interrupted, so that these run: a GPU promises that all threads
// of a block get on. In checked mode an access is where that happens; the fast mode has nothing but a signal.
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
