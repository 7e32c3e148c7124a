// Checked mode: what is known of each piece of memory that a kernel may use, and the findings.
//
// A checked launch has one worker, so blocks run one after the other and all of this is plain data. Time is an
// `epoch`: it moves on at each start of a block and each barrier of it. Two accesses of different threads of a block
// are ordered if their epochs differ, or if they are of one warp whose lanes have met in between.
#pragma once
#include <vector>

#include "../checks.h"

namespace emulator {

constexpr uint16_t NOBODY = 0xffff;  // no thread has this number

// The last write of a piece of memory, and those of its reads since a barrier that a race would need.
struct Cell {
  uint32_t write_epoch, read_epoch, read_warp_epoch;
  uint16_t reader;
  uint16_t neighbour;  // one more reader, of the same warp
  uint16_t other;      // one more reader, of another warp
  uint16_t writer;
  bool read_atomic, write_atomic;
  uint32_t read_pc, neighbour_pc, other_pc, write_pc, write_warp_epoch;
};

constexpr uint32_t NEVER = 0, BY_HOST = 1, FIRST_EPOCH = 2;

enum class Memory : int { unknown, global, symbol, shared };
// An array. Its cells have 1 << shift bytes each.
struct Region {
  char* start;
  size_t bytes;
  Memory memory;
  int index;  // of a shared array: in the list that the host gave
  int shift;
  Cell* cells;
};

// checked.py has the same numbers and fields.
enum class FindingKind : int { none, out_of_bounds, race, uninitialised, subscript, misaligned, async = 20 };
struct Party {
  int write, atomic;
  unsigned thread;  // linear
  uint64_t block;   // linear
  uint64_t pc;      // from the start of the kernel library
};
struct Finding {
  FindingKind kind;
  Memory memory;
  int index;
  uint64_t start;  // of the array
  int64_t offset;  // of the access, from there
  uint64_t bytes;  // of the access
  int64_t subscript;
  Party own, other;
  unsigned exited;  // threads of the block that had returned
  char type[256];   // of an array that was subscripted wrongly, as C++ spells it; or of a misaligned pointer
};

// A shared array as the host knows it: where it lies after the anchor. bytes -1: what the launch asks for.
struct SharedArray {
  int64_t offset, bytes;
  int64_t is_array;  // 0: the compiler's own note of whether an array is initialised
};
// The kernel library of the next launch.
struct Target {
  char* base;                   // where the library lies
  char *data_start, *data_end;  // its variables
  char* (*anchor)();            // one thread-local variable of it
  const SharedArray* shared;
  int shared_count;
};

constexpr size_t RECENT = 256;

struct Check {
  std::vector<Region> watched;  // buffers and variables of modules
  std::vector<Region> regions;  // all of this launch, by address
  std::vector<Cell> shared_cells;
  std::vector<uint32_t> block_epochs;  // when each block of the launch began
  const Region* recent[RECENT] = {};   // by the line of code that used it
  Target target = {};
  char *shared_start = nullptr, *shared_end = nullptr, *stacks = nullptr;
  const char* words = nullptr;  // threadIdx, blockIdx ...
  size_t words_bytes = 0;
  uint32_t epoch = FIRST_EPOCH, launch_epoch = 0, block_epoch = 0, warp_epochs[MAX_THREADS / WARP] = {};
  bool active = false, fenced = false;
  bool pending = false;  // a read of shared memory that nobody has written so far: `finding` has it
  uint64_t last_pc = 0;
  uint64_t steps = 0, pause = 0, step_limit = ~uint64_t(0);  // of the block: so far, when to look, when to stop
  Finding finding = {};
};
extern Check the_check;

// In which order blocks and threads run: luck should not hide a race.
enum class Schedule : int { forward, reverse, random };
void start_schedule(uint64_t blocks, unsigned threads);  // of a launch

void start_steps();                     // of a block
void pause_steps(uint64_t pc);          // others go before; or the block has gone on for too long
const char* lane_state(unsigned lane);  // why a lane of this thread's warp did not come, in words

[[noreturn]] void report(FindingKind kind, const char* type, const void* pc);  // without an array
void give_up_pending();  // ends the launch if a pending read has turned out to be one of what nobody wrote
// Ends the launch if the bytes of an asynchronous copy are touched that is not over; checked/async.cpp.
extern bool copies_under_way;
void check_under_way(const char* p, size_t bytes, bool write, uint64_t pc);

}  // namespace emulator
