// Launches that may begin before those ahead of them have ended: which of these may still run until a block waits.
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

}  // namespace

void begin_launch_order() {
  Check& c = the_check;
  if (!next_is_early) launched.clear();
  next_launch.epoch = c.launch_epoch;
  launched.push_back(next_launch);
  begin_ahead();
}

void begin_ahead() { the_check.settled_epoch = launched.front().epoch; }

void note_grid_wait() { the_check.settled_epoch = the_check.launch_epoch; }

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
