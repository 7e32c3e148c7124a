// Functions that the compiler calls before each access of a kernel compiled with -fsanitize=thread,bounds,alignment.
// The sanitizers' own runtimes are not linked: these are their entry points, under their names.
#include "access.h"
#include "order.h"

using namespace emulator;

#define PC __builtin_return_address(0)

namespace {

// The layout in gcc/ubsan.cc and compiler-rt's ubsan_value.h.
struct Location {
  const char* file;
  unsigned line, column;
};
struct Type {
  uint16_t kind, info;
  char name[];
};
struct OutOfBounds {
  Location location;
  const Type *array, *index;
};
struct OutOfRange {
  Location location;
  const Type *left, *right;
};
struct TypeMismatch {
  Location location;
  const Type* type;
  unsigned char log_alignment, access;
};

[[noreturn]] void report(FindingKind kind, int64_t subscript, const char* type, const void* pc, bool write = false) {
  Finding& f = the_check.finding;
  f.kind = kind;
  f.subscript = subscript;
  f.own = {write, 0, linear_thread, the_check.block, pc_of(pc)};
  snprintf(f.type, sizeof f.type, "%s", type);
  stop(FailureKind::finding);
}

template <class T>
bool has(const void* values, size_t bytes, T value) {
  bool found = false;
  for (size_t i = 0; i < bytes; i += sizeof value) {
    T one;
    memcpy(&one, static_cast<const char*>(values) + i, sizeof one);
    found |= one == value;
  }
  return found;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) { check_depth(PC); }
void __tsan_func_exit() {}

#define ACCESS(bytes)                                                                                             \
  void __tsan_unaligned_read##bytes(void* p) { check_access(p, bytes, false, Manner::plain, PC); }                \
  void __tsan_unaligned_write##bytes(void* p) { check_access(p, bytes, true, Manner::plain, PC); }                \
  void __tsan_volatile_read##bytes(void* p) { check_access(p, bytes, false, Manner::is_volatile, PC); }           \
  void __tsan_volatile_write##bytes(void* p) { check_access(p, bytes, true, Manner::is_volatile, PC); }           \
  void __tsan_unaligned_volatile_read##bytes(void* p) { check_access(p, bytes, false, Manner::is_volatile, PC); } \
  void __tsan_unaligned_volatile_write##bytes(void* p) { check_access(p, bytes, true, Manner::is_volatile, PC); }
#define CELL(bytes)                                                     \
  void __tsan_read##bytes(void* p) { check_cell<bytes, false>(p, PC); } \
  void __tsan_write##bytes(void* p) { check_cell<bytes, true>(p, PC); } \
  ACCESS(bytes)
#define CELLS(bytes)                                                     \
  void __tsan_read##bytes(void* p) { check_plain<false>(p, bytes, PC); } \
  void __tsan_write##bytes(void* p) { check_plain<true>(p, bytes, PC); } \
  ACCESS(bytes)
CELL(1)
CELL(2)
CELL(4)
CELLS(8)
CELLS(16)
void __tsan_read_range(void* p, size_t bytes) { check_access(p, bytes, false, Manner::plain, PC); }
void __tsan_write_range(void* p, size_t bytes) { check_access(p, bytes, true, Manner::plain, PC); }
// The pointer at the beginning of an object to the virtual functions of its class.
void __tsan_vptr_read(void** p) { check_plain<false>(p, sizeof *p, PC); }
void __tsan_vptr_update(void** p, void*) { check_plain<true>(p, sizeof *p, PC); }

// Copies. clang++ calls the functions that begin with __tsan, and the linker redirects the C library's to the others.
#define COPIES(prefix)                                              \
  void* prefix##memcpy(void* to, const void* from, size_t bytes) {  \
    check_access(from, bytes, false, Manner::plain, PC);            \
    check_access(to, bytes, true, Manner::plain, PC);               \
    return memcpy(to, from, bytes);                                 \
  }                                                                 \
  void* prefix##memmove(void* to, const void* from, size_t bytes) { \
    check_access(from, bytes, false, Manner::plain, PC);            \
    check_access(to, bytes, true, Manner::plain, PC);               \
    return memmove(to, from, bytes);                                \
  }                                                                 \
  void* prefix##memset(void* to, int value, size_t bytes) {         \
    check_access(to, bytes, true, Manner::plain, PC);               \
    return memset(to, value, bytes);                                \
  }
COPIES(__tsan_)
COPIES(__wrap_)

// Functions of <math.h> that store a second result through a pointer.
#define SECOND(T, name, U)                                   \
  T name(T x, U* place) noexcept;                            \
  T __wrap_##name(T x, U* place) {                           \
    check_access(place, sizeof(U), true, Manner::plain, PC); \
    return name(x, place);                                   \
  }
#define SECONDS(T, f)                                    \
  SECOND(T, frexp##f, int)                               \
  SECOND(T, modf##f, T)                                  \
  T remquo##f(T x, T y, int* place) noexcept;            \
  T __wrap_remquo##f(T x, T y, int* place) {             \
    check_access(place, 4, true, Manner::plain, PC);     \
    return remquo##f(x, y, place);                       \
  }                                                      \
  void sincos##f(T x, T* s, T* c) noexcept;              \
  void __wrap_sincos##f(T x, T* s, T* c) {               \
    check_access(s, sizeof(T), true, Manner::plain, PC); \
    check_access(c, sizeof(T), true, Manner::plain, PC); \
    sincos##f(x, s, c);                                  \
  }
SECONDS(float, f)
SECONDS(double, )

// Atomics read and write, and do not race with each other. There is one worker, so they need not be atomic here. Other
// threads may run during a check, but not after it.
#define UPDATE(bits, T, name, expression)                                       \
  T __tsan_atomic##bits##_fetch_##name(volatile T* p, T v, int) {               \
    check_access(const_cast<T*>(p), sizeof(T), true, Manner::atomic, PC, true); \
    const T old = *p;                                                           \
    *p = expression;                                                            \
    return old;                                                                 \
  }
#define EXCHANGE(bits, T, strength)                                                                 \
  int __tsan_atomic##bits##_compare_exchange_##strength(volatile T* p, T* compare, T v, int, int) { \
    check_access(const_cast<T*>(p), sizeof(T), false, Manner::atomic, PC);                          \
    if (*p == *compare) check_access(const_cast<T*>(p), sizeof(T), true, Manner::atomic, PC, true); \
    const T old = *p;                                                                               \
    const bool same = old == *compare;                                                              \
    if (same) *p = v;                                                                               \
    *compare = old;                                                                                 \
    return same;                                                                                    \
  }
#define EXCHANGE_VALUE(bits, T)                                                                    \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T compare, T v, int, int) {          \
    check_access(const_cast<T*>(p), sizeof(T), false, Manner::atomic, PC);                         \
    if (*p == compare) check_access(const_cast<T*>(p), sizeof(T), true, Manner::atomic, PC, true); \
    const T old = *p;                                                                              \
    if (old == compare) *p = v;                                                                    \
    return old;                                                                                    \
  }
#define ATOMICS(bits, T)                                                        \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                      \
    check_access(const_cast<T*>(p), sizeof(T), false, Manner::atomic, PC);      \
    return *p;                                                                  \
  }                                                                             \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                   \
    check_access(const_cast<T*>(p), sizeof(T), true, Manner::atomic, PC);       \
    *p = v;                                                                     \
  }                                                                             \
  T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) {                   \
    check_access(const_cast<T*>(p), sizeof(T), true, Manner::atomic, PC, true); \
    const T old = *p;                                                           \
    *p = v;                                                                     \
    return old;                                                                 \
  }                                                                             \
  UPDATE(bits, T, add, T(old + v))                                              \
  UPDATE(bits, T, sub, T(old - v))                                              \
  UPDATE(bits, T, and, T(old& v))                                               \
  UPDATE(bits, T, or, T(old | v))                                               \
  UPDATE(bits, T, xor, T(old ^ v))                                              \
  EXCHANGE(bits, T, strong)                                                     \
  EXCHANGE(bits, T, weak)                                                       \
  EXCHANGE_VALUE(bits, T)
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)

void __tsan_atomic_thread_fence(int) { note_fence(Scope::device); }
void __tsan_atomic_signal_fence(int) {}

[[noreturn]] void __ubsan_handle_builtin_unreachable(Location*) {
  report(FindingKind::unreachable, 0, "__builtin_unreachable() is reached", PC);
}
[[noreturn]] void __ubsan_handle_missing_return(Location*) {
  report(FindingKind::unreachable, 0, "a function ends without returning its value", PC);
}
void __ubsan_handle_out_of_bounds(OutOfBounds* data, uintptr_t index) {
  report(FindingKind::subscript, int64_t(index), data->array->name, PC);
}
void __ubsan_handle_shift_out_of_bounds(OutOfRange* data, uintptr_t, uintptr_t bits) {
  // clang++ extends a negative int by zeros. `info` has whether the type is signed, and the logarithm of its bits.
  const unsigned info = data->right->info, unused = info & 1 ? (64u - (1u << (info >> 1))) & 63 : 0;
  char text[sizeof the_check.finding.type];
  snprintf(text, sizeof text, "a shift of %s by %lld bits", data->left->name,
           (long long)(uint64_t(bits) << unused) >> unused);
  report(FindingKind::undefined, 0, text, PC);
}
void __ubsan_handle_float_cast_overflow(void*, uintptr_t) {
  report(FindingKind::undefined, 0, "a number is converted to an integer type that cannot hold it", PC);
}
void __ubsan_handle_type_mismatch_v1(TypeMismatch* data, uintptr_t pointer) {
  if (!data->log_alignment) {  // beyond the end of a variable: a thread's own here, all others elsewhere
    if (pointer - uintptr_t(the_check.stacks) >= STACKS) return;
    the_check.finding.offset = 0;
    the_check.finding.bytes = 0;
    report(FindingKind::local, 0, data->type->name, PC);
  }
  const size_t alignment = size_t(1) << data->log_alignment;
  the_check.finding.offset = int64_t(pointer % alignment);
  the_check.finding.bytes = alignment;
  report(FindingKind::misaligned, 0, data->type->name, PC);
}
}
#pragma GCC visibility pop

namespace emulator {
void check_set(const void* values, size_t bytes, size_t size, const char* what) {
  if (size == sizeof UNSET_FLOAT ? has(values, bytes, UNSET_FLOAT) : has(values, bytes, UNSET_HALF))
    report(FindingKind::unset, what, PC);
}
// A copy of more bytes than the compiler sees room for. Arrays other than a thread's own are checked elsewhere.
void check_room(const char* name, const void* p, size_t bytes, size_t room, bool write) {
  Finding& f = the_check.finding;
  if (uintptr_t(p) - uintptr_t(the_check.stacks) >= STACKS) return;
  f.offset = room;
  f.bytes = bytes;
  ::report(FindingKind::local, 0, name, PC, write);
}
void note_read_only(const void* p, size_t bytes) { check_read_only_load(p, bytes, PC); }
void note_block_fence() { note_fence(Scope::block); }
void note_read(const void* p, size_t bytes) { check_plain<false>(p, bytes, PC); }
void note_write(const void* p, size_t bytes) { check_plain<true>(p, bytes, PC); }
void report(FindingKind kind, const char* type, const void* pc) { ::report(kind, 0, type, pc); }
}  // namespace emulator
