// Blocks that wait for each other take turns on one operating-system thread. A GPU runs many blocks at a time and
// guarantees progress for each of them, so a block may wait for a write of another. A block without a thread that can
// continue is suspended, and the next block begins with its own stacks. The shared memory of the block is put aside.
#pragma once
#include <deque>
#include <vector>

#include "worker.h"

namespace emulator {

// For one operating-system thread, during one launch.
class Turns {
 public:
  Turns(Worker& first, OwnMemory shared);
  ~Turns();
  // Runs a block from its beginning. False: there is a failure, which is that of `first`.
  bool run(const uint3& block);
  bool go_on();  // likewise for each of the suspended ones
  bool waits() const { return !suspended_.empty(); }
  bool is_full() const { return suspended_.size() >= most_; }

 private:
  struct Suspended {
    Worker* worker;
    uint3 block;
    std::vector<char> shared;
  };
  Worker* spare();
  bool ended(Worker& worker, const uint3& block);

  Worker& first_;
  OwnMemory shared_;
  size_t most_;       // blocks at a time, at which no further chunk is begun
  bool any_ = false;  // was suspended
  std::deque<Suspended> suspended_;
  std::vector<Worker*> idle_{&first_}, further_;  // `further_`: besides the first one
};

}  // namespace emulator
