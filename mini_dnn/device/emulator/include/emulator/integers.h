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
#define EMULATOR_SIGNED(name, end, expression) \
  EMULATOR_OF_BYTES_AND_HALFWORDS(name, end, signed char, short, expression)
#define EMULATOR_UNSIGNED(name, end, expression) \
  EMULATOR_OF_BYTES_AND_HALFWORDS(name, end, unsigned char, unsigned short, expression)
#define EMULATOR_BOTH(name, expression)  \
  EMULATOR_UNSIGNED(name, u, expression) \
  EMULATOR_SIGNED(name, s, expression)
#define EMULATOR_COMPARISON(name, op)          \
  EMULATOR_BOTH(__vcmp##name, x op y ? -1 : 0) \
  EMULATOR_BOTH(__vset##name, x op y)
EMULATOR_UNSIGNED(__vadd, , x + y)
EMULATOR_UNSIGNED(__vsub, , x - y)
EMULATOR_UNSIGNED(__vadd, us, (emulator::saturated<decltype(x), float>(x + y)))
EMULATOR_UNSIGNED(__vsub, us, (emulator::saturated<decltype(x), float>(x - y)))
EMULATOR_SIGNED(__vadd, ss, (emulator::saturated<decltype(x), float>(x + y)))
EMULATOR_SIGNED(__vsub, ss, (emulator::saturated<decltype(x), float>(x - y)))
EMULATOR_BOTH(__vmin, x < y ? x : y)
EMULATOR_BOTH(__vmax, x < y ? y : x)
EMULATOR_BOTH(__vabsdiff, x < y ? y - x : x - y)
EMULATOR_UNSIGNED(__vavg, u, x + y + 1 >> 1)
EMULATOR_SIGNED(__vavg, s, x + y + (x + y >= 0) >> 1)
EMULATOR_UNSIGNED(__vhadd, u, x + y >> 1)
EMULATOR_UNSIGNED(__vcmp, eq, x == y ? -1 : 0)
EMULATOR_UNSIGNED(__vcmp, ne, x != y ? -1 : 0)
EMULATOR_UNSIGNED(__vset, eq, x == y)
EMULATOR_UNSIGNED(__vset, ne, x != y)
EMULATOR_COMPARISON(gt, >)
EMULATOR_COMPARISON(ge, >=)
EMULATOR_COMPARISON(lt, <)
EMULATOR_COMPARISON(le, <=)
#undef EMULATOR_COMPARISON
#undef EMULATOR_BOTH
#undef EMULATOR_UNSIGNED
#undef EMULATOR_SIGNED
#undef EMULATOR_OF_BYTES_AND_HALFWORDS
#undef EMULATOR_OF_PARTS

#define EMULATOR_OF_ONE_WORD(parts)                                              \
  inline unsigned __vneg##parts(unsigned a) { return __vsub##parts(0, a); }      \
  inline unsigned __vnegss##parts(unsigned a) { return __vsubss##parts(0, a); }  \
  inline unsigned __vabs##parts(unsigned a) { return __vabsdiffs##parts(a, 0); } \
  inline unsigned __vabsss##parts(unsigned a) { return __vmaxs##parts(a, __vnegss##parts(a)); }
EMULATOR_OF_ONE_WORD(2)
EMULATOR_OF_ONE_WORD(4)
#undef EMULATOR_OF_ONE_WORD

// The sums of the parts of differences.
#define EMULATOR_SUMS(sign)                                             \
  inline unsigned __vsad##sign##2(unsigned a, unsigned b) {             \
    const unsigned d = __vabsdiff##sign##2(a, b);                       \
    return (d & 0xffff) + (d >> 16);                                    \
  }                                                                     \
  inline unsigned __vsad##sign##4(unsigned a, unsigned b) {             \
    const unsigned d = __vabsdiff##sign##4(a, b);                       \
    return (d & 0xff) + (d >> 8 & 0xff) + (d >> 16 & 0xff) + (d >> 24); \
  }
EMULATOR_SUMS(s)
EMULATOR_SUMS(u)
#undef EMULATOR_SUMS

// Products of bytes with bytes, and of halfwords with the two low or high bytes, all signed or all unsigned.
#define EMULATOR_PRODUCTS(T, byte, halfword)                                           \
  inline T __dp4a(T a, T b, T sum) {                                                   \
    for (int i = 0; i < 32; i += 8) sum += T(byte(a >> i)) * T(byte(b >> i));          \
    return sum;                                                                        \
  }                                                                                    \
  inline T __dp2a_lo(T a, T b, T sum) {                                                \
    return sum + T(halfword(a)) * T(byte(b)) + T(halfword(a >> 16)) * T(byte(b >> 8)); \
  }                                                                                    \
  inline T __dp2a_hi(T a, T b, T sum) { return __dp2a_lo(a, T(b >> 16), sum); }
EMULATOR_PRODUCTS(int, int8_t, int16_t)
EMULATOR_PRODUCTS(unsigned, uint8_t, uint16_t)
#undef EMULATOR_PRODUCTS
inline int __dp4a(char4 a, char4 b, int sum) {
  return __dp4a(emulator::bits_as<int>(a), emulator::bits_as<int>(b), sum);
}
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned sum) {
  return __dp4a(emulator::bits_as<unsigned>(a), emulator::bits_as<unsigned>(b), sum);
}
