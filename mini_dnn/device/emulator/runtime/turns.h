// Blocks that wait for each other take turns on one operating-system thread. A GPU runs many blocks at a time, and
// promises that each of those gets on: one may wait for what another writes. A block of which no thread gets on is
// suspended, and the next one begins, with stacks of its own; what the block shares is put aside.
#pragma once
#include <deque>
#include <vector>

#include "worker.h"

namespace emulator {

// The memory that threads of the system have of their own for a library: of kernels, what their blocks share.
struct OwnMemory {
  char* start = nullptr;
  size_t bytes = 0;
};
OwnMemory own_memory(const void* code);  // of the library that it lies in, for the calling thread

// Of one operating-system thread, during one launch.
class Turns {
 public:
  Turns(Worker& first, OwnMemory shared) : first_(first), shared_(shared) {}
  ~Turns();
  // Runs a block from its start. False: there is a failure, which is that of `first`.
  bool run(const uint3& block);
  bool go_on();  // likewise, with each of those that were suspended
  bool waits() const { return !suspended_.empty(); }
  bool is_full() const { return suspended_.size() + 1 >= MOST; }

 private:
  static constexpr size_t MOST = 256;  // blocks at a time
  struct Suspended {
    Worker* worker;
    uint3 block;
    std::vector<char> shared;
  };
  Worker* spare();
  bool ended(Worker& worker, const uint3& block);

  Worker& first_;
  OwnMemory shared_;
  bool any_ = false;  // was suspended
  std::deque<Suspended> suspended_;
  std::vector<Worker*> idle_{&first_};
};

}  // namespace emulator
