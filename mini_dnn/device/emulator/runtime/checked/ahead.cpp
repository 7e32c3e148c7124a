// Early launches, which may begin before earlier launches have ended (Launch(..., early=True)). This file knows which
// earlier launches may still run, and which threads are ordered after ptx::grid_wait(). A thread is if it has called
// grid_wait(), or has met such a thread at a barrier, or has waited for an mbarrier at which one arrived. A thread that
// reads a flag also counts as ordered, once any thread of the block has called grid_wait(): who set the flag is not
// known here, and a right kernel must never be reported. Some wrong kernels are therefore missed.
#include <algorithm>
#include <string>

#include "shadow.h"

namespace emulator {

namespace {

struct Launched {
  uint32_t epoch;  // the first epoch of the launch
  std::string kernel;
};
// The launches that may still run: the last one that was not early, and all since. An early launch joins them. Any
// other launch starts when all of them have ended, and replaces them.
std::vector<Launched> launched;
Launched next_launch;
bool next_is_early = false;

bool some_waited = false;                        // whether any thread of the block or cluster called grid_wait()
bool has_waited[MAX_CLUSTER][MAX_THREADS] = {};  // whether a thread called it, or is ordered after one that did

bool& this_thread() { return has_waited[the_check.rank][linear_thread]; }

}  // namespace

void begin_launch_order() {
  Check& c = the_check;
  if (!next_is_early) launched.clear();
  next_launch.epoch = c.launch_epoch;
  launched.push_back(next_launch);
  begin_ahead();
}

void begin_ahead() {
  the_check.settled_epoch = launched.front().epoch;
  if (some_waited) std::fill_n(has_waited[0], MAX_CLUSTER * MAX_THREADS, false);
  some_waited = false;
}

void note_grid_wait() { some_waited = this_thread() = true; }

bool is_ahead() { return !this_thread(); }

void follow_wait() {
  if (some_waited) this_thread() = true;
}

void follow_thread(unsigned rank, unsigned thread) { has_waited[rank][thread] = true; }

void meet_wait(unsigned first, unsigned count) {
  Check& c = the_check;
  bool* const threads = has_waited[c.rank] + first;
  if (!some_waited || std::find(threads, threads + count, true) == threads + count) return;
  std::fill_n(threads, count, true);
  if (count == this_worker->total && !c.several)
    c.settled_epoch = c.launch_epoch;  // all are ordered: no access needs a check
}

void meet_wait_of_cluster() {
  if (some_waited) std::fill_n(has_waited[0], MAX_CLUSTER * MAX_THREADS, true);
}

const char* kernel_of(uint32_t epoch) {
  size_t i = launched.size() - 1;
  while (i > 0 && launched[i].epoch > epoch) i--;
  return launched[i].kernel.c_str();
}

}  // namespace emulator

// Called by the host before each launch: its kernel, and whether it may begin before earlier launches have ended.
#pragma GCC visibility push(default)
extern "C" void emulator_launch_order(const char* kernel, int early) {
  emulator::next_launch.kernel = kernel;
  emulator::next_is_early = early;
}
#pragma GCC visibility pop
