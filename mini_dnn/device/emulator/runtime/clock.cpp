// The clock that kernels read. It is in the runtime so that kernel libraries need no system functions.
#include <ctime>

#include "../include/emulator/runtime_interface.h"

namespace emulator {

long long clock_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

}  // namespace emulator
