// Registers and local arrays that nobody set: the compiler fills them with numbers that signal when they are used
// (build.py), and the processor stops there. x86-64 alone: elsewhere their results are wrong, and no line is told.
#pragma once
#include <signal.h>

#include "../worker.h"

namespace emulator {

void watch_unset();  // in this thread of the system, while it runs kernels
void unwatch_unset();
// After SIGFPE, or the SIGTRAP that comes after the next instruction: whether it was this. True: the kernel goes on.
bool goes_on_after(int signal, const siginfo_t& info, void* state, Worker& worker);

}  // namespace emulator
