// Checked mode: the known state of each piece of memory that a kernel may use.
//
// A checked launch has one worker, or the workers of one cluster that take turns, so all of this is plain data. Time is
// one clock. It advances at each start of a block, at each barrier, when the lanes of a warp meet, and at each fence.
// Everything at one time belongs to one block. Two accesses of different threads of a block are ordered if one is older
// than the block's last barrier, or if both are in one warp whose lanes have met in between. Those of two blocks of a
// cluster are ordered if a memory-ordering barrier of the cluster came in between, see checked/cluster.cpp. All others
// are ordered by an mbarrier, see checked/clocks.h, or by a fence and a flag, see checked/order.h.
#pragma once
#include <vector>

#include "../cluster.h"
#include "interface.h"

namespace emulator {

constexpr uint16_t NOBODY = 0xffff;  // no thread has this number

// How an access is made. `handed`: a store directly after a fence, by which flags are set.
enum class Manner : uint8_t { plain, is_volatile, handed, atomic };

// The last write to a piece of memory, and those of its reads since a barrier that a race would need. The fields that
// most accesses need come first.
struct Cell {
  uint32_t write_epoch, read_epoch;  // when
  // A token, see BlockCheck, of the warp or block whose further reads need not be recorded
  uint32_t seen;
  uint32_t write_pc;
  uint16_t writer;
  uint16_t reader;
  uint16_t neighbour;  // another reader in the same warp
  uint16_t other;      // another reader in another warp
  Manner read_manner, write_manner;
  uint32_t read_pc, neighbour_pc, other_pc;
  uint32_t neighbour_epoch, other_epoch;  // at most read_epoch
};
// A value of `write_epoch`: the bytes of the cell are tracked separately, and `write_pc` is the index of its parts;
// access.cpp.
constexpr uint32_t SPLIT = ~uint32_t(0);

// The last read of a piece of a block's shared memory by another block.
struct FarRead {
  uint32_t epoch, pc;
  uint16_t thread;
  bool atomic;
};

constexpr uint32_t NEVER = 0, BY_HOST = 1, FIRST_EPOCH = 2;

// An array. Its cells have 1 << shift bytes each.
struct Region {
  char* start;
  size_t bytes;
  Memory memory;
  int index;  // of a shared array: its index in the host's list
  int shift;
  Cell* cells;
  unsigned rank;          // of a shared array: the rank of its block in the cluster
  bool is_far;            // for the running block: whether it belongs to another one
  FarRead* far;           // its pieces once more, in a cluster
  size_t first_cell = 0;  // of a shared array: the first of its block's cells
  size_t mask = (size_t(1) << shift) - 1;
  size_t whole = bytes >> shift;  // number of cells
  bool read_only = false;         // a pointer argument says so, while another argument does not
  bool forgotten = false;         // what launches wrote was forgotten: reads of variables are reported, too
  bool is_plain = false;          // an access only needs the state of its cells
  bool sparse = false;            // most of it is never touched, and everything unwritten counts as input
};

constexpr size_t RECENT = 1024;
constexpr uint32_t NO_TOKEN = ~uint32_t(0);  // no cell has it

struct Barrier;      // async.h
struct BlockOrder;   // checked/order.h
struct BlockClocks;  // checked/clocks.h

// The state of one block. It is put aside while another block of its cluster runs.
struct BlockCheck {
  uint64_t block = 0;  // linear
  unsigned rank = 0;   // in its cluster
  char *shared_start = nullptr, *shared_end = nullptr, *stacks = nullptr;
  const char* words = nullptr;  // threadIdx, blockIdx ...
  size_t words_bytes = 0;
  uint32_t epoch = FIRST_EPOCH;                   // of its last barrier
  uint32_t warp_epochs[MAX_THREADS / WARP] = {};  // when the lanes of each warp last met
  uint32_t cluster_epoch = 0;                     // when the block or its cluster began
  unsigned exited = 0;                            // threads that had returned at its last barrier
  uint32_t arrivals[MAX_THREADS / WARP] =
      {};                         // when a lane of each warp last arrived at an mbarrier, or began a product
  BlockOrder* order = nullptr;    // what its threads have fenced and seen
  BlockClocks* clocks = nullptr;  // what they know by mbarriers
  // `finding` is not reported yet: a read of unwritten shared memory, or a race, which may be caused by threads that
  // wait at different barriers.
  bool pending = false;
  unsigned warp_masks[MAX_THREADS / WARP] = {};  // the lanes of each warp that last met
  // Tokens that no other block or warp, and no other time, has used since the block last met; NO_TOKEN: none so far.
  uint32_t token;
  uint32_t tokens[MAX_THREADS / WARP];
  uint64_t last_pc = 0;
  uint64_t steps = 0, pause = 0;  // so far, and when to check again
  Finding finding = {};

  BlockCheck() { forget_tokens(); }
  void forget_tokens() {
    token = NO_TOKEN;
    for (uint32_t& each : tokens) each = NO_TOKEN;
  }
};

// A shuffle call that gave a lane the value of an absent one.
struct Undefined {
  Site site;
  Failure found;
};
constexpr size_t MOST_UNDEFINED = 16;

struct Check : BlockCheck {
  std::vector<Region> watched;  // buffers and variables of modules
  std::vector<Region> regions;  // all of this launch, by address
  std::vector<Cell> shared_cells[MAX_CLUSTER];
  const Region* recent[RECENT] = {};  // by the line of code that used it
  Target target = {};
  std::vector<const char*> read_only;  // such buffers of the next launch
  // Shared arrays whose words are used by several threads have cells of two bytes, others of four, which is twice as
  // fast.
  const char* halves_of = nullptr;  // a library, and which of its arrays have them
  std::vector<bool> halves;
  bool more_halves = false;  // since they got their cells
  size_t shared_count = 0;   // cells of a block
  struct Owner {
    uint32_t epoch;  // from this epoch on
    uint64_t block;
  };
  std::vector<Owner> owners;     // of the launch's epochs
  uint32_t clock = FIRST_EPOCH;  // the last epoch
  uint32_t last_token = 0;
  uint32_t launch_epoch = 0;   // the first one of the launch
  uint32_t ordered_epoch = 0;  // everything older is ordered before what any block does now
  uint32_t settled_epoch = 0;  // earlier accesses have ended: launch_epoch if no thread has to wait
  bool active = false, fenced = false, many = false;  // fenced: some thread did; many: the launch has clusters
  bool mixed = false;                                 // or has blocks of which one waits for another
  bool several = false;                               // either of them: the last access may be another block's
  uint64_t step_limit = ~uint64_t(0);                 // of a block
  std::vector<Undefined> undefined;                   // values that shuffles left undefined, the first of each call
  int varied = -1;                                    // which of them varies from order to order; -1: all
  // for clusters
  std::vector<uint8_t> ranks;     // the block of each epoch since cluster_epoch
  BlockCheck aside[MAX_CLUSTER];  // all blocks except the running one
};
extern Check the_check;

uint32_t new_epoch(unsigned rank);  // the next one, for a block of the cluster
void begin_epoch(unsigned rank);    // for what follows a barrier of that block
void mark_far_regions();
uint64_t block_of(uint32_t epoch);                   // linear
void drop_parts(Cell& cell);                         // it is whole again
const Cell* parts_of(const Cell& cell, int& count);  // its bytes if these are tracked separately, otherwise itself
// The largest value of a field over a cell's bytes.
template <class Ask>
auto most_of(const Cell& cell, Ask ask) {
  int count;
  const Cell* part = parts_of(cell, count);
  auto most = ask(*part);
  while (--count)
    if (const auto next = ask(*++part); next > most) most = next;
  return most;
}
// For an epoch since the block or its cluster began.
inline unsigned rank_of(uint32_t epoch) {
  const Check& c = the_check;
  return c.many ? c.ranks[epoch - c.cluster_epoch] : 0;
}
// Whether this block did it, since it or its cluster began.
inline bool is_mine(uint32_t epoch) {
  const Check& c = the_check;
  if (__builtin_expect(!c.several, 1)) return true;
  return c.many ? rank_of(epoch) == c.rank : block_of(epoch) == c.block;
}
// For what this block does now.
inline uint32_t now() {
  const Check& c = the_check;
  return __builtin_expect(c.many && c.ranks.back() != c.rank, 0) ? new_epoch(c.rank) : c.clock;
}

// The BlockCheck of a block of the cluster, wherever it is.
inline BlockCheck& block_check(unsigned rank) {
  Check& c = the_check;
  return rank == c.rank ? c : c.aside[rank];
}

inline uint64_t linear(const uint3& block) {
  return block.x + uint64_t(gridDim.x) * (block.y + uint64_t(gridDim.y) * block.z);
}

// checked/ahead.cpp: the order of early launches
void begin_launch_order();                           // a launch starts
void begin_ahead();                                  // a block or cluster starts: none of its threads has waited
bool is_ahead();                                     // whether this thread is not ordered after ptx::grid_wait()
void follow_wait();                                  // this thread saw a flag of a thread that may have waited
void follow_thread(unsigned rank, unsigned thread);  // the same for a thread that is ordered after one that has waited
void meet_wait(unsigned first, unsigned count);      // these threads of the block have met at a barrier
void meet_wait_of_cluster();                         // all threads of the cluster have met at a barrier
const char* kernel_of(uint32_t epoch);               // the kernel of the launch that this epoch belongs to

// checked/heap.cpp
struct Access;
const Region* find_in_heap(const Access& a);
// Ends the launch if it is next to heap memory, or where some was; false if it is not. It may be a race that is not
// reported yet.
bool check_beside_heap(const Access& a);
void note_heap(Finding& f);  // what its array is
void forget_freed();

// checked/cluster.cpp
void check_member_ended(Worker& worker);  // of a cluster; may set worker.failure
int shared_of(const char* p);             // the rank of the block that owns this shared memory; -1: none
void note_far_arrival(Barrier& barrier);  // of this thread, at an mbarrier of another block
void note_far(const Region& r, const char* address, size_t bytes, bool write, uint64_t pc);  // in another block
void check_not_gone(unsigned rank, const char* p, size_t bytes, const char* what, uint64_t pc);

// The order in which blocks and threads run: a race should not be hidden by luck.
enum class Schedule : int { forward, reverse, random };
void start_schedule(uint64_t blocks, unsigned threads);  // of a launch
Schedule schedule();
// A thread that polls what another one writes lets that one run after so many steps: a GPU promises progress to all
// threads of a block. In random order, threads also change before that, in the middle of what they do.
constexpr uint64_t TURN = 100'000;
uint64_t turn_steps();  // until others run

void start_calls();                     // through pointers: checked/calls.cpp
void start_steps();                     // of a block
void pause_steps(uint64_t pc);          // lets others run first; or the block has run for too long
const char* lane_state(unsigned lane);  // why a lane of this thread's warp did not arrive, in words

[[noreturn]] void report(FindingKind kind, const char* type, const void* pc);  // without an array
void look_at_write();     // it raced with another one: does it change anything?
bool end_pending_race();  // unless threads wait; false: there is none
void give_up_pending();   // ends the launch if there is something to report: nothing else caused it
// Ends the launch if the bytes of an asynchronous copy in flight are accessed; checked/async.cpp.
extern bool copies_under_way;
extern bool copy_starts;                      // the current accesses are those of the copy engine
bool check_all_landed(const Worker& worker);  // what other blocks have sent to it; otherwise sets a finding
void check_under_way(const char* p, size_t bytes, bool write, uint64_t pc);

}  // namespace emulator
