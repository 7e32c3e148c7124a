// Atomic functions: relaxed, like CUDA's, but real atomics, because blocks run on several threads of the host.
#pragma once
#include "number_types.h"
#include "runtime_interface.h"

// Other types do not compile with nvcc, but for float2 and float4 in atomicAdd(), which only sm_90 has. On Linux,
// uint64_t is unsigned long, which CUDA's atomics do not take.
#define EMULATOR_ATOMIC_TYPES(accepted, name, types, advice) \
  static_assert(accepted, #name "() is only for pointers to " types "; " advice)

namespace emulator {

template <class T>
constexpr bool is_atomic_word = is_one_of<T, int, unsigned, long long, unsigned long long>;

// Any update of a trivially copyable T with compare-and-swap. Returns the old value.
template <class T, class Update>
#ifdef EMULATOR_COUNTED  // one access, however many attempts it takes
__attribute__((noinline)) EMULATOR_NOT_CHECKED T try_update(T* p, Update update) {
#else
EMULATOR_ACCESS T atomic_update(T* p, Update update) {
#endif
  T old, now;
  __atomic_load(p, &old, __ATOMIC_RELAXED);
  do now = update(old);
  while (!__atomic_compare_exchange(p, &old, &now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}
#ifdef EMULATOR_COUNTED
template <class T, class Update>
EMULATOR_ACCESS T atomic_update(T* p, Update update) {
  note_atomic(p, sizeof *p);
  return try_update(p, update);
}
#endif

}  // namespace emulator

template <class T>
EMULATOR_ACCESS T atomicAdd(T* p, std::type_identity_t<T> v) {
  EMULATOR_ATOMIC_TYPES((emulator::is_one_of<T, int, unsigned, unsigned long long, float, double> ||
                         emulator::is_half<T> || emulator::is_half_pair<T>),
                        atomicAdd, "int, unsigned, unsigned long long, float, double, and types of halves and bfloats",
                        "cast a pointer to a larger integer to unsigned long long*, whose sums have the same bits");
  if constexpr (std::is_integral_v<T>)
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
  else
    return emulator::atomic_update(p, [v](T old) { return T(old + v); });
}
template <class T>
EMULATOR_ACCESS T atomicSub(T* p, std::type_identity_t<T> v) {
  EMULATOR_ATOMIC_TYPES((emulator::is_one_of<T, int, unsigned>), atomicSub, "int and unsigned",
                        "use atomicAdd() of the negative value");
  return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED);
}
template <class T>
EMULATOR_ACCESS T atomicMax(T* p, std::type_identity_t<T> v) {
  EMULATOR_ATOMIC_TYPES((emulator::is_atomic_word<T>), atomicMax, "int, unsigned, long long and unsigned long long",
                        "write a loop with atomicCAS() for others");
  return emulator::atomic_update(p, [v](T old) { return old < v ? v : old; });
}
template <class T>
EMULATOR_ACCESS T atomicMin(T* p, std::type_identity_t<T> v) {
  EMULATOR_ATOMIC_TYPES((emulator::is_atomic_word<T>), atomicMin, "int, unsigned, long long and unsigned long long",
                        "write a loop with atomicCAS() for others");
  return emulator::atomic_update(p, [v](T old) { return v < old ? v : old; });
}
template <class T>
EMULATOR_ACCESS T atomicExch(T* p, std::type_identity_t<T> v) {
  EMULATOR_ATOMIC_TYPES((emulator::is_one_of<T, int, unsigned, unsigned long long, float>), atomicExch,
                        "int, unsigned, unsigned long long and float", "cast the pointer to one of them");
  T old;
  __atomic_exchange(p, &v, &old, __ATOMIC_RELAXED);
  return old;
}
template <class T>
EMULATOR_ACCESS T atomicCAS(T* p, std::type_identity_t<T> compare, std::type_identity_t<T> v) {
  EMULATOR_ATOMIC_TYPES((emulator::is_one_of<T, int, unsigned, unsigned long long, unsigned short>), atomicCAS,
                        "int, unsigned, unsigned long long and unsigned short",
                        "cast the pointer to one of them, and convert a float with __float_as_int()");
  __atomic_compare_exchange(p, &compare, &v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return compare;
}
template <class T>
EMULATOR_ACCESS T atomicAnd(T* p, std::type_identity_t<T> v) {
  EMULATOR_ATOMIC_TYPES((emulator::is_atomic_word<T>), atomicAnd, "int, unsigned, long long and unsigned long long",
                        "cast the pointer to one of them");
  return __atomic_fetch_and(p, v, __ATOMIC_RELAXED);
}
template <class T>
EMULATOR_ACCESS T atomicOr(T* p, std::type_identity_t<T> v) {
  EMULATOR_ATOMIC_TYPES((emulator::is_atomic_word<T>), atomicOr, "int, unsigned, long long and unsigned long long",
                        "cast the pointer to one of them");
  return __atomic_fetch_or(p, v, __ATOMIC_RELAXED);
}
template <class T>
EMULATOR_ACCESS T atomicXor(T* p, std::type_identity_t<T> v) {
  EMULATOR_ATOMIC_TYPES((emulator::is_atomic_word<T>), atomicXor, "int, unsigned, long long and unsigned long long",
                        "cast the pointer to one of them");
  return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED);
}
EMULATOR_ACCESS unsigned atomicInc(unsigned* p, unsigned last) {
  return emulator::atomic_update(p, [last](unsigned old) { return old >= last ? 0 : old + 1; });
}
EMULATOR_ACCESS unsigned atomicDec(unsigned* p, unsigned last) {
  return emulator::atomic_update(p, [last](unsigned old) { return old == 0 || old > last ? last : old - 1; });
}

// For the threads of a block (_block), or of all GPUs and the host (_system). Here, each of them is atomic for the GPU.
#define EMULATOR_SCOPES(name)                               \
  template <class T, class... Values>                       \
  EMULATOR_ACCESS T name##_block(T* p, Values... values) {  \
    return name(p, values...);                              \
  }                                                         \
  template <class T, class... Values>                       \
  EMULATOR_ACCESS T name##_system(T* p, Values... values) { \
    return name(p, values...);                              \
  }
EMULATOR_SCOPES(atomicAdd)
EMULATOR_SCOPES(atomicSub)
EMULATOR_SCOPES(atomicMax)
EMULATOR_SCOPES(atomicMin)
EMULATOR_SCOPES(atomicExch)
EMULATOR_SCOPES(atomicCAS)
EMULATOR_SCOPES(atomicAnd)
EMULATOR_SCOPES(atomicOr)
EMULATOR_SCOPES(atomicXor)
EMULATOR_SCOPES(atomicInc)
EMULATOR_SCOPES(atomicDec)
#undef EMULATOR_SCOPES
#undef EMULATOR_ATOMIC_TYPES
