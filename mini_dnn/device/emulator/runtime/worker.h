// A worker: the operating-system thread that runs blocks, one at a time, and its data. Each block of a cluster has its
// own worker: cluster.h.
#pragma once
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "../include/emulator/launch.h"
#include "../include/emulator/runtime_interface.h"
#include "context.h"

namespace emulator {

constexpr int MAX_THREADS = 1024, WARP = 32;
constexpr size_t STACK_BYTES = 64 << 10;  // build.py refuses kernels with larger frames

// Thread-local memory of a library: for kernels, the shared memory of their blocks.
struct OwnMemory {
  char* start = nullptr;
  size_t bytes = 0;
  bool contains(const void* p) const { return p >= start && p < start + bytes; }
};
OwnMemory own_memory(const void* code);  // of the library that contains it, for the calling thread

// What a thread of the block waits for. `name` is the function that it called.
struct Wait {
  const char* name;
  Site site;
  unsigned mask;  // of a warp function; 0 for a barrier of the block
};

// The state of a thread that has started. Each fiber has a stack.
struct alignas(64) Fiber {  // one cache line
  Context context;
  Fiber* next;  // in its queue: ready, at the barrier, or free
  uint3 thread;
  unsigned linear;
  Wait wait;
  const char* kernel_top;  // in checked mode: the frames of the runtime are above it
};

struct Queue {
  Fiber* first = nullptr;
  Fiber* last;
  void push(Fiber* f) {
    f->next = nullptr;
    (first ? last->next : first) = f;
    last = f;
  }
  Fiber* pop() {
    Fiber* f = first;
    first = f->next;
    return f;
  }
  void append(Queue& other) {
    if (!other.first) return;
    (first ? last->next : first) = other.first;
    last = other.last;
    other.first = nullptr;
  }
};

// Lanes that wait for each other. Disjoint groups of one warp may wait at the same time.
struct Rendezvous {
  unsigned mask, arrived;
  WarpOperation operation;
  const void* call;  // of __activemask, which continues without lanes that cannot arrive; null for all others
};

struct Warp {
  unsigned exited;  // lanes beyond the block's end count as exited
  int open;         // rendezvous in use
  Rendezvous rendezvous[WARP];
  Fiber* fibers[WARP];
  void* arguments[WARP];
};

// Why a launch ended early. runtime.py has the same numbers and fields.
enum class FailureKind : int {
  none,
  kernel,
  deadlock,
  fault,
  stack_overflow,
  division,
  cancelled,
  no_memory,
  finding,
  warp,
  endless
};
struct Failure {
  FailureKind kind;
  unsigned block[3], thread[3];  // all bits of `block` are set if it is not known
  uint64_t address;              // of the fault
  uint64_t pc;                   // where, if a signal ended it
  char text[4096];
};

struct Async;     // async.h
struct Recorder;  // counted/recorder.h
struct Cluster;   // cluster.h

struct Worker {
  // the block
  void (*run)(void* const*);
  void* const* arguments;
  unsigned total, started, alive;  // threads
  Fiber* current;
  Queue ready;
  // its barrier
  Queue waiting;
  unsigned waiting_count;
  unsigned votes;  // predicates that were true
  bool sites_differ;
  struct {
    unsigned votes, voters;
  } result;  // of the last barrier
  Warp warps[MAX_THREADS / WARP];
  // stacks
  Context host;  // the worker's own
  char* stacks = nullptr;
  Fiber* free_fibers = nullptr;
  int fiber_count = 0;
  Fiber fibers[MAX_THREADS];
  Async* async = nullptr;      // copies and mbarriers of the block, once a kernel uses them
  Cluster* cluster = nullptr;  // of the block, if the launch has clusters or the kernel uses one
  Cluster* alone = nullptr;    // of the block alone
  unsigned rank;               // of the block in its cluster
  // blocks that wait for others: turns.cpp
  Worker* first = this;    // of those that share an operating-system thread
  unsigned idle = 0;       // turns that threads have given away since one of them made progress
  bool suspended = false;  // the block has given its turn away
  bool busy = false;       // one lane computes for its warp
  bool abandoned = false;  // another block of the cluster has ended the launch
#ifdef EMULATOR_COUNTED
  Recorder* recorder = nullptr;
#endif
  // how the launch ended
  sigjmp_buf after_fault;
  volatile bool in_kernel = false;
  Failure failure;
};

extern EMULATOR_TLS Worker* this_worker __attribute__((visibility("hidden")));

// Returns when all threads have exited, or with worker.failure or worker.suspended set
void run_block(Worker& worker);
void resume_block(Worker& worker);                     // likewise
[[noreturn]] void stop(FailureKind kind);              // leaves the kernel from any of its stacks; failure.text is set
void note_place(Failure& failure);                     // this thread and block
bool reserve_stacks(Worker& worker, bool huge_pages);  // once, for all of its blocks; false: there is no room for them
void release_fibers(Worker& worker);                   // after a failure: all stacks are free again

// Whether a stack was too small so far. `fault` is the address of a fault, if there was one.
bool stack_overflowed(Worker& worker, const void* fault);
void note_overflow(Failure& failure);  // of a thread that is not known

// Of address space without memory, before and after each buffer and the stacks.
size_t guard_bytes();

void watch_faults();  // gives the calling thread a stack for signal handlers
void install_fault_handlers();
void restore_fault_handlers();

}  // namespace emulator
