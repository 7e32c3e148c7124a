// Checked mode: what is known of each piece of memory that a kernel may use, and the findings.
//
// A checked launch has one worker, or those of one cluster with a turn that goes round, so all of this is plain data.
// Time is one clock, which goes on at each start of a block, barrier, meeting of a warp's lanes, and fence; what is
// done at one time is all of one block. Two accesses of different threads of a block are ordered if one is older than
// the block's last barrier, or if they are of one warp whose lanes have met in between; those of two blocks of a
// cluster if a barrier of the cluster came between that orders memory, see checked/cluster.cpp; all others by a fence
// and a flag, see checked/order.h.
#pragma once
#include <vector>

#include "../cluster.h"

namespace emulator {

constexpr uint16_t NOBODY = 0xffff;  // no thread has this number

// How an access is made, and `handed`: a store right after a fence, as a flag is set.
enum class Manner : uint8_t { plain, is_volatile, handed, atomic };

// The last write of a piece of memory, and those of its reads since a barrier that a race would need. What most
// accesses look at comes first.
struct Cell {
  uint32_t write_epoch, read_epoch;  // when
  uint32_t seen;                     // a token, see BlockCheck, of the warp or block whose further reads need no notes
  uint32_t write_pc;
  uint16_t writer;
  uint16_t reader;
  uint16_t neighbour;  // one more reader, of the same warp
  uint16_t other;      // one more reader, of another warp
  Manner read_manner, write_manner;
  uint32_t read_pc, neighbour_pc, other_pc;
  uint32_t neighbour_epoch, other_epoch;  // at most read_epoch
};
// As `write_epoch`: the bytes of the cell are known one by one, and `write_pc` is the number of its parts; access.cpp.
constexpr uint32_t SPLIT = ~uint32_t(0);

// The last read of a piece of a block's shared memory by another block.
struct FarRead {
  uint32_t epoch, pc;
  uint16_t thread;
  bool atomic;
};

constexpr uint32_t NEVER = 0, BY_HOST = 1, FIRST_EPOCH = 2;

enum class Memory : int { unknown, global, symbol, shared, heap };
// An array. Its cells have 1 << shift bytes each.
struct Region {
  char* start;
  size_t bytes;
  Memory memory;
  int index;  // of a shared array: in the list that the host gave
  int shift;
  Cell* cells;
  unsigned rank;          // of a shared array: of the block in its cluster
  bool is_far;            // it is another block's, for the block that runs
  FarRead* far;           // and its pieces again, in a cluster
  size_t first_cell = 0;  // of a shared array: among those of the block
  size_t mask = (size_t(1) << shift) - 1;
  size_t whole = bytes >> shift;  // cells
  bool read_only = false;         // says a pointer that the kernel was given, and it was given another one
  bool forgotten = false;         // what launches have written to it: of variables too it is told who reads that
  bool is_plain = false;          // an access needs no look but at its cells
  bool sparse = false;            // most of it is touched by nobody, and all that was not written counts as given
};

// checked.py has the same numbers and fields.
enum class FindingKind : int {
  none,
  out_of_bounds,
  race,
  uninitialised,
  subscript,
  misaligned,
  local,        // out of bounds, of an array of the thread's own
  unset,        // a register or fragment that is used before it is set
  stack,        // on a thread's stack, but not a variable; `detail` says where
  freed,        // out of bounds, of memory of the heap; `detail` says why
  unreachable,  // what no thread may reach; `type` says it in words
  async = 20,
  cluster = 21
};
enum class Detail : int {
  none,
  same_value,
  read_only_load,
  read_only_pointer,
  of_another_thread,
  of_no_variable,
  way_back,       // what a function needs to return; `other` has the place of the call
  after_free,     // `other` freed it
  freed_twice,    // the same
  not_allocated,  // and freed
  kept,           // of a function: its registers, or the place of its result
  no_function,    // is where a call leads
  ahead,          // of the wait for earlier launches; `type` is the kernel of the one that it meets
};
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
  uint64_t block;  // in whose shared memory it is, if it is a shared array
  int64_t offset;  // of the access, from there
  uint64_t bytes;  // of the access
  int64_t subscript;
  Party own, other;
  unsigned exited;  // threads of the block that had returned
  Detail detail;    // of a race or on the stack
  char type[256];   // of an array that was subscripted wrongly, as C++ spells it; or of a misaligned pointer
  uint64_t heap_bytes, heap_pc;  // of memory of the heap: how much, and where it was allocated
};

// A shared array as the host knows it: where it lies after the anchor. bytes -1: what the launch asks for.
struct SharedArray {
  int64_t offset, bytes;
  int64_t is_array;  // 0: the compiler's own note of whether an array is initialised
};
// What the grader knows of a library, from where that begins: a function that may be called by a pointer, and how many
// bytes of a structure it returns in memory; and what nobody may change on the stack while a function runs.
struct Entry {
  uint64_t at, returned;
};
struct Kept {
  uint64_t start, end;  // of the function: a call in it returns behind the first and not behind the other
  // So many bytes from where its stack begins, the address to which it returns; rounded down; and from there on.
  int64_t low, alignment, offset;
};
// The kernel library of the next launch.
struct Target {
  char* base;                   // where the library lies
  char *data_start, *data_end;  // its variables
  char* (*anchor)();            // one thread-local variable of it
  const SharedArray* shared;
  int shared_count;
  const Entry* entries;
  int entry_count;
  const Kept* kept;  // by their functions
  int kept_count;
  size_t kept_bytes;  // at the end of a function's variables: what is kept lies there
  bool is_judged;     // by the grader: the five above are known
};

constexpr size_t RECENT = 1024;
constexpr uint32_t NO_TOKEN = ~uint32_t(0);  // and no cell has it

struct BlockOrder;  // checked/order.h

// What is of one block: put aside while another block of its cluster runs.
struct BlockCheck {
  uint64_t block = 0;  // linear
  unsigned rank = 0;   // in its cluster
  char *shared_start = nullptr, *shared_end = nullptr, *stacks = nullptr;
  const char* words = nullptr;  // threadIdx, blockIdx ...
  size_t words_bytes = 0;
  uint32_t epoch = FIRST_EPOCH;                   // of its last barrier
  uint32_t warp_epochs[MAX_THREADS / WARP] = {};  // when the lanes of each warp met last
  uint32_t cluster_epoch = 0;                     // when the block or its cluster began
  BlockOrder* order = nullptr;                    // what its threads have fenced and seen
  // `finding` is not told yet: a read of shared memory that nobody has written so far, or a race, which may come of
  // threads that wait at different barriers.
  bool pending = false;
  unsigned warp_masks[MAX_THREADS / WARP] = {};  // with which lanes of each warp met last
  // Numbers of no other block or warp since the block met last, and of no other time; NO_TOKEN: none so far.
  uint32_t token;
  uint32_t tokens[MAX_THREADS / WARP];
  uint64_t last_pc = 0;
  uint64_t steps = 0, pause = 0;  // so far, and when to look
  Finding finding = {};

  BlockCheck() { forget_tokens(); }
  void forget_tokens() {
    token = NO_TOKEN;
    for (uint32_t& each : tokens) each = NO_TOKEN;
  }
};

// A call of a shuffle that has given a lane the value of one that was not there.
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
  // Shared arrays whose words threads share have cells of two bytes, others of four: these take half the time.
  const char* halves_of = nullptr;  // a library, and which of its arrays
  std::vector<bool> halves;
  bool more_halves = false;  // since they got their cells
  size_t shared_count = 0;   // cells of a block
  struct Owner {
    uint32_t epoch;  // from this one on
    uint64_t block;
  };
  std::vector<Owner> owners;     // of the launch's epochs
  uint32_t clock = FIRST_EPOCH;  // the last epoch
  uint32_t last_token = 0;
  uint32_t launch_epoch = 0;   // the first one of the launch
  uint32_t ordered_epoch = 0;  // what is older comes before what any block does now
  uint32_t settled_epoch = 0;  // accesses before it have ended: launch_epoch if no thread has to wait
  bool active = false, fenced = false, many = false;  // fenced: a thread was; many: the launch has clusters
  bool mixed = false;                                 // or blocks of which one waits for another
  bool several = false;                               // either: what was done last need not be of this block
  uint64_t step_limit = ~uint64_t(0);                 // of a block
  std::vector<Undefined> undefined;                   // values that shuffles have left so, the first of each call
  int varied = -1;                                    // which of them each order has another value of; -1: all
  // of a cluster
  std::vector<uint8_t> ranks;     // whose the epochs from cluster_epoch on are
  BlockCheck aside[MAX_CLUSTER];  // of all blocks but the one that runs
};
extern Check the_check;

uint32_t new_epoch(unsigned rank);  // the next one, of a block of the cluster
void begin_epoch(unsigned rank);    // for what comes after a barrier of that block
void mark_far_regions();
uint64_t block_of(uint32_t epoch);                   // linear
void drop_parts(Cell& cell);                         // it is whole again
const Cell* parts_of(const Cell& cell, int& count);  // its bytes, where these are known one by one, else itself
// The largest of what is asked of a cell's bytes.
template <class Ask>
auto most_of(const Cell& cell, Ask ask) {
  int count;
  const Cell* part = parts_of(cell, count);
  auto most = ask(*part);
  while (--count)
    if (const auto next = ask(*++part); next > most) most = next;
  return most;
}
// Of one since the block or its cluster began.
inline unsigned rank_of(uint32_t epoch) {
  const Check& c = the_check;
  return c.many ? c.ranks[epoch - c.cluster_epoch] : 0;
}
// Whether it was this block that did what was done then, since it or its cluster began.
inline bool is_mine(uint32_t epoch) {
  const Check& c = the_check;
  if (__builtin_expect(!c.several, 1)) return true;
  return c.many ? rank_of(epoch) == c.rank : block_of(epoch) == c.block;
}
// For what this block does.
inline uint32_t now() {
  const Check& c = the_check;
  return __builtin_expect(c.many && c.ranks.back() != c.rank, 0) ? new_epoch(c.rank) : c.clock;
}

// The part of BlockCheck of a block of the cluster, wherever it is.
inline BlockCheck& block_check(unsigned rank) {
  Check& c = the_check;
  return rank == c.rank ? c : c.aside[rank];
}

inline uint64_t linear(const uint3& block) {
  return block.x + uint64_t(gridDim.x) * (block.y + uint64_t(gridDim.y) * block.z);
}

// checked/ahead.cpp: the order of early launches
void begin_launch_order();                       // a launch starts
void begin_ahead();                              // a block or cluster starts: none of its threads has waited
bool is_ahead();                                 // whether this thread is not ordered after ptx::grid_wait()
void follow_wait();                              // this thread saw an mbarrier or flag of a thread that may have waited
void meet_wait(unsigned first, unsigned count);  // these threads of the block have met at a barrier
void meet_wait_of_cluster();                     // all threads of the cluster have met at a barrier
const char* kernel_of(uint32_t epoch);           // the kernel of the launch that this epoch belongs to

// checked/heap.cpp
struct Access;
const Region* find_in_heap(const Access& a);
// Ends the launch if it lies beside memory of the heap, or where some was; false: it does not. It may be a race that
// is not told yet.
bool check_beside_heap(const Access& a);
void note_heap(Finding& f);  // what its array is
void forget_freed();

// checked/cluster.cpp
void check_member_ended(Worker& worker);     // of a cluster; may set worker.failure
int shared_of(const char* p);                // the rank of the block whose shared memory it is; -1: of none
bool is_ordered(uint32_t epoch, bool read);  // whether an access of another block comes before what this one does now
void note_far(const Region& r, const char* address, size_t bytes, bool write, uint64_t pc);  // in another block
void check_not_gone(unsigned rank, const char* p, size_t bytes, const char* what, uint64_t pc);

// In which order blocks and threads run: luck should not hide a race.
enum class Schedule : int { forward, reverse, random };
void start_schedule(uint64_t blocks, unsigned threads);  // of a launch
Schedule schedule();

void start_calls();                     // by pointers: checked/calls.cpp
void start_steps();                     // of a block
void pause_steps(uint64_t pc);          // others go before; or the block has gone on for too long
void pause_poll();                      // others go before
const char* lane_state(unsigned lane);  // why a lane of this thread's warp did not come, in words

[[noreturn]] void report(FindingKind kind, const char* type, const void* pc);  // without an array
void look_at_write();     // that raced with another: does it change anything?
bool end_pending_race();  // unless threads wait; false: there is none
void give_up_pending();   // ends the launch if there is something to tell: nothing else is its cause
// Ends the launch if the bytes of an asynchronous copy are touched that is not over; checked/async.cpp.
extern bool copies_under_way;
extern bool copy_starts;                      // what is accessed now is only so for the copy engine
bool check_all_landed(const Worker& worker);  // what other blocks have sent it; else it notes a finding
void check_under_way(const char* p, size_t bytes, bool write, uint64_t pc);

}  // namespace emulator
