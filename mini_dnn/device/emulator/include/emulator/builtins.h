// Barriers and other functions of CUDA C++ that need no header.
#pragma once
#include <type_traits>

#include "qualifiers.h"
#include "runtime_interface.h"

inline void __syncthreads(emulator::Site site = emulator::Site::current()) { emulator::block_barrier(site); }
inline int __syncthreads_count(int predicate, emulator::Site site = emulator::Site::current()) {
  return emulator::block_vote(emulator::Vote::count, predicate, site);
}
inline int __syncthreads_and(int predicate, emulator::Site site = emulator::Site::current()) {
  return emulator::block_vote(emulator::Vote::all, predicate, site);
}
inline int __syncthreads_or(int predicate, emulator::Site site = emulator::Site::current()) {
  return emulator::block_vote(emulator::Vote::any, predicate, site);
}

// Threads of one block share an operating-system thread, so only g++ could reorder their accesses.
inline void __threadfence_block() {
  asm volatile("" ::: "memory");
  emulator::note_block_fence();
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __nanosleep(unsigned) { emulator::yield(); }
[[noreturn]] inline void __trap(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
  emulator::fail("__trap() was called (%s:%u)", file, line);
}
inline void __brkpt() {}

template <class T>
EMULATOR_ACCESS T __ldg(const T* p) {
  emulator::note_read_only(p, sizeof *p);
  return *p;
}
#define EMULATOR_LOAD(name)            \
  template <class T>                   \
  EMULATOR_ACCESS T name(const T* p) { \
    return *p;                         \
  }
#define EMULATOR_STORE(name)                                       \
  template <class T>                                               \
  EMULATOR_ACCESS void name(T* p, std::type_identity_t<T> value) { \
    *p = value;                                                    \
  }
EMULATOR_LOAD(__ldca)
EMULATOR_LOAD(__ldcg)
EMULATOR_LOAD(__ldcs)
EMULATOR_LOAD(__ldcv)
EMULATOR_LOAD(__ldlu)
EMULATOR_STORE(__stcg)
EMULATOR_STORE(__stcs)
EMULATOR_STORE(__stwb)
EMULATOR_STORE(__stwt)
#undef EMULATOR_STORE
#undef EMULATOR_LOAD

template <class T>
inline size_t __cvta_generic_to_shared(const T* p) {
  return (size_t)p;
}

inline long long clock64() { return emulator::clock_ns(); }  // only the order of two readings is meaningful

// The runtime stores what a kernel prints, and the host shows it after the launch, as on a GPU.
#define printf(...) emulator::print(__VA_ARGS__)
