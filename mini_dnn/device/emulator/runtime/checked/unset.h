// Uninitialised registers and local arrays: the compiler fills them with numbers that signal when used (build.py), and
// the processor stops there. Only on x86-64: elsewhere their results are wrong, and no line is reported.
#pragma once
#include <signal.h>

#include "../worker.h"

namespace emulator {

void watch_unset();  // in this system thread, while it runs kernels
void unwatch_unset();
// After SIGFPE, or the SIGTRAP after the next instruction: whether this was the cause. True: the kernel continues.
bool goes_on_after(int signal, const siginfo_t& info, void* state, Worker& worker);

}  // namespace emulator
