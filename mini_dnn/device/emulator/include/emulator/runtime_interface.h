// The functions of the runtime library that compiled kernels call: the only interface between the two.
#pragma once
#include <source_location>

#include "types.h"

// Initial-exec thread-local storage is one addition away from the thread pointer. It is scarce for libraries that are
// loaded late (about 1 KB for all of them), so it only holds these few words.
#define EMULATOR_TLS __attribute__((tls_model("initial-exec"))) __thread

#pragma GCC visibility push(default)
#ifdef EMULATOR_RUNTIME
#define EMULATOR_READ_ONLY  // the runtime sets them when it switches to another thread
#else
// They never change within one thread, so g++ may keep them in registers across a barrier
#define EMULATOR_READ_ONLY const
#endif
extern EMULATOR_TLS EMULATOR_READ_ONLY uint3 threadIdx;
extern EMULATOR_TLS EMULATOR_READ_ONLY uint3 blockIdx;
extern EMULATOR_TLS EMULATOR_READ_ONLY dim3 blockDim;
extern EMULATOR_TLS EMULATOR_READ_ONLY dim3 gridDim;
constexpr int warpSize = 32;

namespace emulator {

extern EMULATOR_TLS EMULATOR_READ_ONLY unsigned linear_thread;  // threadIdx as one number; modulo 32 it is the lane

using Site = std::source_location;  // a call in the kernel: it distinguishes barriers, and reports name it

// Waits for all threads of the block that have not exited.
void block_barrier(Site site);
enum class Vote : int { count, all, any };
int block_vote(Vote vote, bool predicate, Site site);  // the same, and returns the combined predicates

// Waits for the lanes in `mask`, except those that have exited. The last lane to arrive runs
// `operation(arguments, arrived)` for all of them (it may be null). arguments[i] is what lane i passed.
using WarpOperation = void (*)(void* const* arguments, unsigned arrived);
void warp_barrier(unsigned mask, void* argument, WarpOperation operation, const char* name, Site site);
void require_all_lanes(unsigned arrived);  // for an operation that needs them; otherwise ends the launch

// The lanes that arrive at this call together. Waits until every other lane of the warp has exited or waits elsewhere.
unsigned converged_lanes(Site site);
void yield();  // lets other threads of the block run, for loops that poll what those will write
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Of a call: checked mode must not see how its place is read
[[noreturn]] void fail_at(const char* name, Site site, const char* format, ...) __attribute__((format(printf, 3, 4)));
[[noreturn]] void fail_assertion(const char* condition, const char* file, unsigned line);
[[noreturn]] void fail_warp(const char* format, ...) __attribute__((format(printf, 1, 2)));  // lanes are absent
long long clock_ns();  // of a clock that never goes back
int print(const char* format, ...) __attribute__((format(printf, 1, 2)));

// For checked mode: accesses that the compiler's instrumentation does not see. There, functions that access memory are
// inlined into their caller, so that a finding names the line of the kernel.
#ifdef EMULATOR_CHECKED
#define EMULATOR_ACCESS inline __attribute__((always_inline))
#define EMULATOR_NOT_CHECKED __attribute__((no_sanitize("thread", "bounds", "alignment")))
void note_block_fence();
// Checks values before their use; size is that of one value
void check_set(const void* values, size_t bytes, size_t size, const char* what);
void note_read_only(const void* p, size_t bytes);  // by __ldg
void note_read(const void* p, size_t bytes);
void note_write(const void* p, size_t bytes);
void note_tile(const void* p, size_t pitch_bytes, const char* name, Site site);  // a WMMA load or store by all lanes
void note_absent(unsigned lane, unsigned source);  // a lane needs the value of an absent one
void leave_undefined(void* value, size_t bytes, unsigned lane, unsigned source);  // it may need it, or not
#elif defined(EMULATOR_COUNTED)                                                   // likewise, for counters
#define EMULATOR_ACCESS inline __attribute__((always_inline))
#define EMULATOR_NOT_CHECKED __attribute__((no_sanitize("thread"), no_sanitize_coverage))
void note_read(const void* p, size_t bytes);
void note_write(const void* p, size_t bytes);
void note_tile_read(const void* p, size_t bytes);  // by a lane, for WMMA
void note_tile_write(const void* p, size_t bytes);
void note_atomic(const void* p, size_t bytes);
void note_call(const char* name, unsigned number);  // a call of a function that is counted
inline void note_block_fence() {}
inline void note_read_only(const void*, size_t) {}  // the read that follows is counted
inline void note_tile(const void*, size_t, const char*, Site) {}
inline void note_absent(unsigned, unsigned) {}
inline void leave_undefined(void*, size_t, unsigned, unsigned) {}
#else
#define EMULATOR_ACCESS inline
#define EMULATOR_NOT_CHECKED
inline void note_block_fence() {}
inline void note_read_only(const void*, size_t) {}
inline void note_read(const void*, size_t) {}
inline void note_write(const void*, size_t) {}
inline void note_tile(const void*, size_t, const char*, Site) {}
inline void note_absent(unsigned, unsigned) {}
inline void leave_undefined(void*, size_t, unsigned, unsigned) {}
#endif

#ifndef EMULATOR_COUNTED
inline void note_tile_read(const void*, size_t) {}  // checked mode sees the copy that follows
inline void note_tile_write(const void*, size_t) {}
inline void note_call(const char*, unsigned) {}
#endif

// Checked mode fills uninitialised values with these numbers, which signal when used, and which no kernel computes.
constexpr unsigned UNSET_FLOAT = 0x7fa5a5a5;
constexpr unsigned short UNSET_HALF = 0x7da5;
template <class T>
EMULATOR_NOT_CHECKED inline void mark_unset(T* values, int count) {
#ifdef EMULATOR_CHECKED
  for (int i = 0; i < count; i++)
    __builtin_memcpy(values + i, sizeof(T) == 4 ? (void*)&UNSET_FLOAT : (void*)&UNSET_HALF, sizeof(T));
#endif
}
template <class T>
EMULATOR_ACCESS void check_set(const T* values, int count, const char* what) {
#ifdef EMULATOR_CHECKED
  check_set(values, count * sizeof *values, sizeof *values, what);
#endif
}
// If a lane needs what another lane computes for its warp, it is checked where the lane requests it.
template <class T>
EMULATOR_ACCESS void note_result(T& place) {
#ifdef EMULATOR_CHECKED
  note_write(&place, sizeof place);
#endif
}

#ifdef EMULATOR_CHECKED
void check_room(const char* name, const void* p, size_t bytes, size_t room, bool write);
#endif

inline unsigned lane() { return linear_thread % 32; }

}  // namespace emulator
#pragma GCC visibility pop

#if defined(EMULATOR_CHECKED) && !defined(EMULATOR_RUNTIME)
// Copies of the C library. The runtime does not know where arrays of a thread end, but the compiler does once functions
// are inlined into the kernel.
#if defined(__clang__) || __GNUC__ >= 12
#define EMULATOR_ROOM(p) __builtin_dynamic_object_size(p, 0)
#else
#define EMULATOR_ROOM(p) __builtin_object_size(p, 0)
#endif
#define EMULATOR_FITS(name, p, write) \
  if (const size_t room = EMULATOR_ROOM(p); bytes > room) emulator::check_room(name, p, bytes, room, write)
#define EMULATOR_LIBRARY extern inline __attribute__((always_inline, gnu_inline, artificial))
extern "C" {
void* emulator_memcpy(void*, const void*, size_t) noexcept __asm__("memcpy");
void* emulator_memmove(void*, const void*, size_t) noexcept __asm__("memmove");
void* emulator_memset(void*, int, size_t) noexcept __asm__("memset");
EMULATOR_LIBRARY void* memcpy(void* __restrict to, const void* __restrict from, size_t bytes) noexcept {
  EMULATOR_FITS("memcpy", from, false);
  EMULATOR_FITS("memcpy", to, true);
  return emulator_memcpy(to, from, bytes);
}
EMULATOR_LIBRARY void* memmove(void* to, const void* from, size_t bytes) noexcept {
  EMULATOR_FITS("memmove", from, false);
  EMULATOR_FITS("memmove", to, true);
  return emulator_memmove(to, from, bytes);
}
EMULATOR_LIBRARY void* memset(void* to, int value, size_t bytes) noexcept {
  EMULATOR_FITS("memset", to, true);
  return emulator_memset(to, value, bytes);
}
}  // extern "C"
#endif
