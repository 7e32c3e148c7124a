// CUDA's integer functions that C++ lacks, and functions of the bytes and halfwords in a word.
#pragma once
#include "math.h"

#define EMULATOR_MINMAX_OF(prefix, T)                  \
  inline T prefix##min(T a, T b) { return min(a, b); } \
  inline T prefix##max(T a, T b) { return max(a, b); }
EMULATOR_MINMAX_OF(u, unsigned)
EMULATOR_MINMAX_OF(ll, long long)
EMULATOR_MINMAX_OF(ull, unsigned long long)
#undef EMULATOR_MINMAX_OF

inline unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev(unsigned(x)) << 32 | __brev(unsigned(x >> 32));
}
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __sad(int a, int b, unsigned sum) {
  return sum + (a > b ? unsigned(a) - unsigned(b) : unsigned(b) - unsigned(a));
}
inline unsigned __usad(unsigned a, unsigned b, unsigned sum) { return sum + (a > b ? a - b : b - a); }
inline int __hadd(int a, int b) { return int((long long)a + b >> 1); }
inline int __rhadd(int a, int b) { return int((long long)a + b + 1 >> 1); }
inline unsigned __uhadd(unsigned a, unsigned b) { return unsigned((unsigned long long)a + b >> 1); }
inline unsigned __urhadd(unsigned a, unsigned b) { return unsigned((unsigned long long)a + b + 1 >> 1); }
inline int __double2hiint(double x) { return int(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return int(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
  return __longlong_as_double((long long)high << 32 | unsigned(low));
}

namespace emulator {
// Applies to each part of two words. T has the size of a part, and is signed or unsigned.
template <class T, class F>
inline unsigned of_parts(unsigned a, unsigned b, F f) {
  constexpr unsigned BITS = 8 * sizeof(T), MASK = (1u << BITS) - 1;
  unsigned result = 0;
  for (unsigned at = 0; at < 32; at += BITS) result |= (unsigned(f(T(a >> at), T(b >> at))) & MASK) << at;
  return result;
}
}  // namespace emulator

#define EMULATOR_OF_PARTS(name, T, expression)                               \
  inline unsigned name(unsigned a, unsigned b) {                             \
    return emulator::of_parts<T>(a, b, [](T x, T y) { return expression; }); \
  }
#define EMULATOR_OF_BYTES_AND_HALFWORDS(name, end, bytes, halfwords, expression) \
  EMULATOR_OF_PARTS(name##end##4, bytes, expression)                             \
  EMULATOR_OF_PARTS(name##end##2, halfwords, expression)
#define EMULATOR_SIGNED(name, expression) EMULATOR_OF_BYTES_AND_HALFWORDS(name, s, signed char, short, expression)
#define EMULATOR_UNSIGNED(name, end, expression) \
  EMULATOR_OF_BYTES_AND_HALFWORDS(name, end, unsigned char, unsigned short, expression)
EMULATOR_UNSIGNED(__vadd, , x + y)
EMULATOR_UNSIGNED(__vsub, , x - y)
EMULATOR_UNSIGNED(__vmin, u, x < y ? x : y)
EMULATOR_UNSIGNED(__vmax, u, x < y ? y : x)
EMULATOR_UNSIGNED(__vabsdiff, u, x < y ? y - x : x - y)
EMULATOR_UNSIGNED(__vavg, u, x + y + 1 >> 1)
EMULATOR_UNSIGNED(__vcmpeq, , x == y ? -1 : 0)
EMULATOR_UNSIGNED(__vcmpne, , x != y ? -1 : 0)
EMULATOR_UNSIGNED(__vcmpgt, u, x > y ? -1 : 0)
EMULATOR_UNSIGNED(__vcmpge, u, x >= y ? -1 : 0)
EMULATOR_UNSIGNED(__vcmplt, u, x < y ? -1 : 0)
EMULATOR_UNSIGNED(__vcmple, u, x <= y ? -1 : 0)
EMULATOR_SIGNED(__vmin, x < y ? x : y)
EMULATOR_SIGNED(__vmax, x < y ? y : x)
EMULATOR_SIGNED(__vcmpgt, x > y ? -1 : 0)
EMULATOR_SIGNED(__vcmplt, x < y ? -1 : 0)
#undef EMULATOR_UNSIGNED
#undef EMULATOR_SIGNED
#undef EMULATOR_OF_BYTES_AND_HALFWORDS
#undef EMULATOR_OF_PARTS
inline unsigned __vsadu4(unsigned a, unsigned b) {
  const unsigned d = __vabsdiffu4(a, b);
  return (d & 0xff) + (d >> 8 & 0xff) + (d >> 16 & 0xff) + (d >> 24);
}
