// Launches that may begin before those ahead of them have ended: which of these may still run, and which threads come
// after a wait for them. A thread does if it waits, if it meets one that does at a barrier, or if it waits for an
// mbarrier or reads a flag when some thread has waited: that may be too many, so that nothing right is reported.
#include <algorithm>
#include <string>

#include "shadow.h"

namespace emulator {

namespace {

struct Launched {
  uint32_t epoch;  // its first
  std::string kernel;
};
// The last launch that waited for all before it, and those after it; the next launch joins them, or is such a one.
std::vector<Launched> launched;
Launched next_launch;
bool next_is_early = false;

bool some_waited = false;                        // of the block or cluster
bool has_waited[MAX_CLUSTER][MAX_THREADS] = {};  // or comes after one that has

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

void meet_wait(unsigned first, unsigned count) {
  Check& c = the_check;
  bool* const threads = has_waited[c.rank] + first;
  if (!some_waited || std::find(threads, threads + count, true) == threads + count) return;
  std::fill_n(threads, count, true);
  if (count == this_worker->total && !c.several) c.settled_epoch = c.launch_epoch;  // nothing is left to look at
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

// The kernel of the next launch, and whether it may begin before those ahead of it have ended.
#pragma GCC visibility push(default)
extern "C" void emulator_launch_order(const char* kernel, int early) {
  emulator::next_launch.kernel = kernel;
  emulator::next_is_early = early;
}
#pragma GCC visibility pop
