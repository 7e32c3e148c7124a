// Counted mode: the actions of each thread are recorded as a stream of events, and the streams of a warp's lanes are
// replayed in lock step, as a GPU would run them. Each step of the replay is one warp instruction.
//
// Events are the basic blocks that a thread enters, its memory accesses, and its waits. The replay always continues
// with the lanes that are furthest behind in the kernel's code: lanes that leave a loop wait for those that stay in it,
// and the two sides of a branch meet again after it. nvcc lets them reconverge at the same places. This requires code
// in the order of the source, so the kernel is compiled as one function, without passes that move basic blocks. A lane
// that waits for others continues when they have arrived at the same wait.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "../cluster.h"
#include "../counts.h"

namespace emulator {

// counted_interface.py has the same numbers and fields.
enum class EventKind : uint8_t {
  block,  // beginning of a basic block
  load,   // from memory of any kind
  store,
  atomic,
  copy_load,   // a copy's reads of global memory, without registers in between
  copy_store,  // a copy's writes to global memory
  copy_to,     // its writes to shared memory
  copy_from,   // its reads of shared memory
  tile_load,   // by WMMA: the hardware's order of lanes is unknown
  tile_store,
  barrier,  // of the block
  warp,     // a function of a warp: lanes wait for each other
  event     // another call that is counted: products, commits, waits for copies
};
enum class Space : uint8_t { none, global, symbol, shared, remote };  // remote: another block of the cluster

struct Event {
  uint32_t pc;
  uint32_t bytes : 24, kind : 8;  // for barriers, warp functions and events: the index of a name
  uint64_t address;               // for warp functions: the mask; for events: a number in the upper 16 bits
};

// Totals of one place in the kernel that uses one array.
struct Total {
  uint32_t pc;
  int32_t array;  // the host's index; -1: none
  EventKind kind;
  Space space;
  uint16_t name;                          // if it has one; 0: none
  uint32_t bytes;                         // per lane
  uint64_t instructions, lanes;           // of warps, and their active lanes
  uint64_t splits;                        // instructions after which the lanes diverged
  uint64_t sectors, ideal_sectors;        // of 32 bytes, in global memory
  uint64_t used_bytes;                    // distinct bytes within an instruction
  uint64_t lines;                         // of 128 bytes
  uint64_t wavefronts, ideal_wavefronts;  // of shared memory
  uint64_t block_sectors;                 // sectors that the block had not used before, from this place
  uint64_t number;                        // the sum of the numbers of events; bytes of copies
  uint64_t merged;                        // loads that nvcc may merge into a wider one in their basic block
  int64_t saved;                          // the wavefronts that this saves
};

// One warp instruction of a traced block.
struct Record {
  uint64_t block;
  uint32_t warp, pc;
  uint32_t mask, bytes;
  int32_t array;
  EventKind kind;
  Space space;
  uint16_t name;
  uint64_t number;
  int64_t offsets[WARP];  // of each lane's bytes from the beginning of the array; 0 for inactive lanes
};

// An array that kernels may use.
struct CountedArray {
  uint64_t start, bytes;  // for shared ones: the distance from the anchor
  int32_t number;
  int32_t space;
};

// Adjacent loads of a warp from shared memory within a basic block.
struct Neighbours {
  int32_t array;
  uint32_t mask, bytes, length, wavefronts;  // of a lane's load; of all together; of the separate loads
  uint32_t merged;                           // loads that have been merged into another one
  int32_t saved;                             // wavefronts
  uint64_t start;                            // of the array, which a GPU aligns
  uint64_t first[WARP];
};

struct Stream {
  Event *first = nullptr, *next = nullptr, *end = nullptr, *limit = nullptr;  // [first, limit) is the buffer
};

// The streams of a block, and the totals of its launch so far.
struct Recorder {
  const char* stacks = nullptr;
  const char *words = nullptr, *words_end = nullptr;  // threadIdx, blockIdx ...: registers on a GPU
  char* anchor = nullptr;
  uint64_t block = 0;
  bool traced = false;
  Stream streams[MAX_THREADS];
  std::vector<Event*> spare;  // buffers of SMALL events
  std::vector<Total> totals;
  std::vector<int32_t> first_total;         // by pc: the first one of that place; -1: none
  std::vector<int32_t> next_total;          // of the same place
  std::vector<std::vector<uint32_t>> seen;  // by array and sector: 1 + the block that last used it
  std::vector<CountedArray> shared;         // of this block, by address
  std::vector<Record> records;
  std::vector<Neighbours> neighbours[MAX_THREADS / WARP];  // by warp
};

struct Count {
  std::mutex mutex;
  char* base = nullptr;  // of the kernel library
  uint64_t code_bytes = 0;
  std::vector<CountedArray> arrays;  // by address
  std::vector<CountedArray> shared;  // by distance from the anchor
  std::vector<uint64_t> traced;      // blocks
  size_t most_records = 0;
  std::vector<Total> totals;
  std::vector<std::vector<uint8_t>> seen;  // by array and sector
  std::vector<Record> records;
  bool records_left_out = false;
  std::vector<const char*> names{""};
};
extern Count the_count;

uint16_t number_of_name(const char* name);
void play(Worker& worker, unsigned warp);  // as far as all lanes have recorded
// One warp instruction. All lanes of the mask have the same event, and only addresses differ. The caller counts the
// splits.
Total& execute(Worker& worker, unsigned warp, uint32_t mask, const Event& event, const uint64_t* addresses);

}  // namespace emulator
