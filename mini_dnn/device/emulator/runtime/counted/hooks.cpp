// Functions that the compiler calls in a kernel compiled with -fsanitize=thread and -fsanitize-coverage=trace-pc (the
// sanitizers' own runtimes are not linked), and functions for accesses that the compiler does not instrument.
#include <algorithm>
#include <cstring>

#include "../counts.h"
#include "recorder.h"

#define PC __builtin_return_address(0)

namespace emulator {

void make_room(Recorder& r, Stream& s);

namespace {

constexpr size_t STACKS = MAX_THREADS * (STACK_BYTES + 320);  // runtime/fibers.cpp
constexpr long MOST_EVENTS = 1 << 16;                         // of a lane that is ahead of the others

// A lane that is far ahead lets the others continue.
[[gnu::noinline]] void wait_for_lanes(Worker& w, Stream& s) {
  play(w, linear_thread / WARP);
  if (s.end - s.next < MOST_EVENTS) return;
  w.idle = 0;
  yield();
}

[[gnu::always_inline]] inline void note(EventKind kind, unsigned bytes, uint64_t address, const void* pc) {
  Worker& w = *this_worker;
  if (__builtin_expect(w.busy, 0)) return;  // one lane computes for all
  Recorder& r = *w.recorder;
  Stream& s = r.streams[linear_thread];
  if (__builtin_expect(s.end == s.limit, 0)) {
    if (s.end - s.next >= MOST_EVENTS) wait_for_lanes(w, s);
    if (s.end == s.limit) make_room(r, s);
  }
  *s.end++ = {uint32_t(static_cast<const char*>(pc) - the_count.base), bytes, unsigned(kind), address};
}

[[gnu::always_inline]] inline void note_access(EventKind kind, unsigned bytes, const volatile void* p, const void* pc) {
  const auto address = reinterpret_cast<uint64_t>(p);
  const Recorder& r = *this_worker->recorder;
  if (address - reinterpret_cast<uint64_t>(r.stacks) < STACKS) return;
  if (address - reinterpret_cast<uint64_t>(r.words) < size_t(r.words_end - r.words)) return;
  note(kind, bytes, address, pc);
}

// Split into the widest accesses that the size and the address allow.
void note_range(EventKind kind, size_t bytes, const void* p, const void* pc, unsigned widest = 16) {
  const auto start = reinterpret_cast<uint64_t>(p);
  for (size_t done = 0; done < bytes;) {
    unsigned size = widest;
    while (size > bytes - done || (start + done) % size) size /= 2;
    note_access(kind, size, static_cast<const char*>(p) + done, pc);
    done += size;
  }
}

// Split as by nvcc, which knows the alignment of the struct's type: a divisor of its size. If its size is that of an
// access, g++ calls this only for alignments of at most half of it, and 4.
void note_struct(EventKind kind, size_t bytes, const void* p, const void* pc) {
  const size_t divisor = bytes & -bytes,
               most = bytes > 16 || divisor < bytes ? 16 : std::clamp<size_t>(bytes / 2, 1, 4);
  note_range(kind, bytes, p, pc, unsigned(std::min(divisor, most)));
}

}  // namespace
}  // namespace emulator

using namespace emulator;

#pragma GCC visibility push(default)
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __sanitizer_cov_trace_pc() {
  // Otherwise a library is being loaded
  if (__builtin_expect(this_worker != nullptr, 1)) note(EventKind::block, 0, 0, PC);
}

#define ACCESS(bytes)                                                                                 \
  void __tsan_read##bytes(void* p) { note_access(EventKind::load, bytes, p, PC); }                    \
  void __tsan_write##bytes(void* p) { note_access(EventKind::store, bytes, p, PC); }                  \
  void __tsan_unaligned_read##bytes(void* p) { note_struct(EventKind::load, bytes, p, PC); }          \
  void __tsan_unaligned_write##bytes(void* p) { note_struct(EventKind::store, bytes, p, PC); }        \
  void __tsan_volatile_read##bytes(void* p) { note_access(EventKind::load, bytes, p, PC); }           \
  void __tsan_volatile_write##bytes(void* p) { note_access(EventKind::store, bytes, p, PC); }         \
  void __tsan_unaligned_volatile_read##bytes(void* p) { note_struct(EventKind::load, bytes, p, PC); } \
  void __tsan_unaligned_volatile_write##bytes(void* p) { note_struct(EventKind::store, bytes, p, PC); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void* p, size_t bytes) { note_struct(EventKind::load, bytes, p, PC); }
void __tsan_write_range(void* p, size_t bytes) { note_struct(EventKind::store, bytes, p, PC); }

// nvcc copies bytes, because it does not know the alignment of pointers to void.
void* __wrap_memcpy(void* to, const void* from, size_t bytes) {
  note_range(EventKind::load, bytes, from, PC, 1);
  note_range(EventKind::store, bytes, to, PC, 1);
  return memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, size_t bytes) {
  note_range(EventKind::load, bytes, from, PC, 1);
  note_range(EventKind::store, bytes, to, PC, 1);
  return memmove(to, from, bytes);
}
void* __wrap_memset(void* to, int value, size_t bytes) {
  note_range(EventKind::store, bytes, to, PC);
  return memset(to, value, bytes);
}

// Atomics of the kernel. They are real ones, because blocks run on several threads of the host.
#define UPDATE(bits, T, name)                                     \
  T __tsan_atomic##bits##_fetch_##name(volatile T* p, T v, int) { \
    note_access(EventKind::atomic, sizeof(T), p, PC);             \
    return __atomic_fetch_##name(p, v, __ATOMIC_RELAXED);         \
  }
#define ATOMICS(bits, T)                                                                          \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                        \
    note_access(EventKind::load, sizeof(T), p, PC);                                               \
    return __atomic_load_n(p, __ATOMIC_RELAXED);                                                  \
  }                                                                                               \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                                     \
    note_access(EventKind::store, sizeof(T), p, PC);                                              \
    __atomic_store_n(p, v, __ATOMIC_RELAXED);                                                     \
  }                                                                                               \
  T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) {                                     \
    note_access(EventKind::atomic, sizeof(T), p, PC);                                             \
    return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);                                           \
  }                                                                                               \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* compare, T v, int, int) {   \
    note_access(EventKind::atomic, sizeof(T), p, PC);                                             \
    return __atomic_compare_exchange_n(p, compare, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
  }                                                                                               \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* compare, T v, int, int) {     \
    note_access(EventKind::atomic, sizeof(T), p, PC);                                             \
    return __atomic_compare_exchange_n(p, compare, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);  \
  }                                                                                               \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T compare, T v, int, int) {         \
    note_access(EventKind::atomic, sizeof(T), p, PC);                                             \
    __atomic_compare_exchange_n(p, &compare, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);       \
    return compare;                                                                               \
  }                                                                                               \
  UPDATE(bits, T, add)                                                                            \
  UPDATE(bits, T, sub)                                                                            \
  UPDATE(bits, T, and)                                                                            \
  UPDATE(bits, T, or)                                                                             \
  UPDATE(bits, T, xor)
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}
}
#pragma GCC visibility pop

namespace emulator {

void note_read(const void* p, size_t bytes) { note_range(EventKind::load, bytes, p, PC); }
void note_write(const void* p, size_t bytes) { note_range(EventKind::store, bytes, p, PC); }
void note_tile_read(const void* p, size_t bytes) { note_range(EventKind::tile_load, bytes, p, PC); }
void note_tile_write(const void* p, size_t bytes) { note_range(EventKind::tile_store, bytes, p, PC); }
void note_atomic(const void* p, size_t bytes) { note_access(EventKind::atomic, bytes, p, PC); }
void note_call(const char* name, unsigned number) { count_event(name, PC, nullptr, number); }

void count_barrier(const char* name, const void* pc) { note(EventKind::barrier, number_of_name(name), 0, pc); }
void count_warp_operation(unsigned mask, const char* name, const void* pc) {
  note(EventKind::warp, number_of_name(name), mask, pc);
}
void count_event(const char* name, const void* pc, const void* address, unsigned number) {
  note(EventKind::event, number_of_name(name), reinterpret_cast<uint64_t>(address) | uint64_t(number) << 48, pc);
}
void count_copy(const void* pc, const void* global, const void* shared, unsigned bytes, bool store) {
  if (bytes && global)
    note(store ? EventKind::copy_store : EventKind::copy_load, bytes, reinterpret_cast<uint64_t>(global), pc);
  if (bytes && shared)
    note(store ? EventKind::copy_from : EventKind::copy_to, bytes, reinterpret_cast<uint64_t>(shared), pc);
}

}  // namespace emulator
