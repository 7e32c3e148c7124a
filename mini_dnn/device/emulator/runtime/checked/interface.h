// Data that checked mode and the host exchange: findings, and the kernel library of a launch. checked_interface.py
// and checked_finding.py have the same numbers and fields.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulator {

enum class Memory : int { unknown, global, symbol, shared, heap };

enum class FindingKind : int {
  none,
  out_of_bounds,
  race,
  uninitialised,
  subscript,
  misaligned,
  local,        // out of bounds of a thread's own array
  unset,        // a register or fragment that is used before it is set
  stack,        // on a thread's stack, but not a variable; `detail` says where
  freed,        // out of bounds of heap memory; `detail` says why
  unreachable,  // what no thread may access; `type` says it in words
  undefined,    // a number that is out of range, in words
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
  way_back,       // data that a function needs to return; `other` has the place of the call
  after_free,     // `other` freed it
  freed_twice,    // the same
  not_allocated,  // and freed
  kept,           // of a function: its registers, or the place of its result
  no_function,    // a call does not lead to a function
  ahead,          // before the wait for earlier launches; `type` is the kernel of the conflicting one
  copied,         // by the copy engine
};
struct Party {
  int write, atomic;
  unsigned thread;  // linear
  uint64_t block;   // linear
  uint64_t pc;      // relative to the kernel library
};
struct Finding {
  FindingKind kind;
  Memory memory;
  int index;
  uint64_t start;  // of the array
  uint64_t block;  // in whose shared memory it is, if it is a shared array
  int64_t offset;  // of the access, relative to `start`
  uint64_t bytes;  // of the access
  int64_t subscript;
  Party own, other;
  unsigned exited;               // threads of the block that had returned at its last barrier
  Detail detail;                 // for a race or a stack access
  char type[256];                // of a wrongly subscripted array, as C++ spells it; or of a misaligned pointer
  uint64_t heap_bytes, heap_pc;  // for heap memory: its size, and where it was allocated
};

// A shared array as the host knows it: its offset from the anchor. bytes -1: the size given at the launch.
struct SharedArray {
  int64_t offset, bytes;
  int64_t is_array;  // 0: the compiler's own flag of whether an array is initialised
};
// What the grader knows of a library, relative to its beginning: a function that may be called through a pointer, with
// the bytes of a structure that it returns in memory; and what must not change on the stack while a function runs.
struct Entry {
  uint64_t at, returned;
};
struct Kept {
  uint64_t start, end;  // of the function: return addresses of its calls are after `start` and not after `end`
  // Bytes from the beginning of its stack, where the return address is; the alignment to round down to; and an offset.
  int64_t low, alignment, offset;
};
// The kernel library of the next launch.
struct Target {
  char* base;                   // where the library begins
  char *data_start, *data_end;  // its variables
  char* (*anchor)();            // the address of one of its thread-local variables
  const SharedArray* shared;
  int shared_count;
  const Entry* entries;
  int entry_count;
  const Kept* kept;  // sorted by function
  int kept_count;
  size_t kept_bytes;  // at the end of a function's variables, where the protected slots are
  bool is_judged;     // by the grader: the five fields above are set
};

}  // namespace emulator
