// CUDA's mathematical functions beyond <math.h>. The fast ones (`__expf`) are accurate to the last bit or two here,
// which is more than a GPU promises. A result may differ from a GPU's within the bounds of the CUDA Programming Guide.
#pragma once
#include <source_location>  // any header of the C++ library defines its settings
// Without std::cyl_bessel_j and the like: no GPU has them, and reading them takes a third of the time for all headers.
#ifdef _GLIBCXX_USE_STD_SPEC_FUNCS
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#define _GLIBCXX_USE_STD_SPEC_FUNCS 0
#endif
namespace emulator {

template <class To, class From>
inline constexpr To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, x);
}

// Whether the compiler knows a number, and knows that it is neither NaN nor this zero.
template <class Bits, class T>
inline constexpr bool is_known(T x, T zero) {
  const bool is_other = x == x && bits_as<Bits>(x) != bits_as<Bits>(zero);
  return __builtin_constant_p(is_other) && is_other;
}
// As in CUDA, a number wins against a NaN, and +0 is larger than -0 (IEEE 754-2019, maximumNumber). The bits of equal
// numbers differ only for zeros. One comparison is enough if the compiler knows one of them, as in ReLU.
template <class T, class Bits>
inline constexpr T larger(T a, T b) {
  if (is_known<Bits>(b, T(-0.0))) return a > b ? a : b;
  if (is_known<Bits>(a, T(-0.0))) return b > a ? b : a;
  if (__builtin_expect(a == b, 0)) return bits_as<T>(bits_as<Bits>(a) & bits_as<Bits>(b));
  return __builtin_expect(b != b, 0) ? a : a > b ? a : b;
}
template <class T, class Bits>
inline constexpr T smaller(T a, T b) {
  if (is_known<Bits>(b, T(0))) return a < b ? a : b;
  if (is_known<Bits>(a, T(0))) return b < a ? b : a;
  if (__builtin_expect(a == b, 0)) return bits_as<T>(bits_as<Bits>(a) | bits_as<Bits>(b));
  return __builtin_expect(b != b, 0) ? a : a < b ? a : b;
}

}  // namespace emulator

// The C library's functions leave the sign of zero open, and g++ does not inline them. Counted mode knows their names.
#ifdef EMULATOR_COUNTED
#include <math.h>
#else
#define __builtin_fmaxf(a, b) emulator::larger<float, int>(a, b)  // std::fmax(float, float)
#define __builtin_fminf(a, b) emulator::smaller<float, int>(a, b)
#include <math.h>
#undef __builtin_fmaxf
#undef __builtin_fminf
#define EMULATOR_MINMAX(name, T, value) \
  extern "C" inline __attribute__((gnu_inline, always_inline)) T name(T a, T b) noexcept { return value(a, b); }
EMULATOR_MINMAX(fminf, float, (emulator::smaller<float, int>))
EMULATOR_MINMAX(fmaxf, float, (emulator::larger<float, int>))
EMULATOR_MINMAX(fmin, double, (emulator::smaller<double, long long>))
EMULATOR_MINMAX(fmax, double, (emulator::larger<double, long long>))
#undef EMULATOR_MINMAX
#endif
#include <stdlib.h>
#include <string.h>

#include "runtime_interface.h"

#define EMULATOR_MINMAX(T)                                   \
  inline constexpr T min(T a, T b) { return b < a ? b : a; } \
  inline constexpr T max(T a, T b) { return a < b ? b : a; }
EMULATOR_MINMAX(int)
EMULATOR_MINMAX(unsigned)
EMULATOR_MINMAX(long)
EMULATOR_MINMAX(unsigned long)
EMULATOR_MINMAX(long long)
EMULATOR_MINMAX(unsigned long long)
#undef EMULATOR_MINMAX
#define EMULATOR_MINMAX(A, B, T, Bits)                                          \
  inline constexpr T min(A a, B b) { return emulator::smaller<T, Bits>(a, b); } \
  inline constexpr T max(A a, B b) { return emulator::larger<T, Bits>(a, b); }
EMULATOR_MINMAX(float, float, float, int)
EMULATOR_MINMAX(double, double, double, long long)
EMULATOR_MINMAX(float, double, double, long long)
EMULATOR_MINMAX(double, float, double, long long)
#undef EMULATOR_MINMAX
inline constexpr unsigned min(int a, unsigned b) { return min(unsigned(a), b); }
inline constexpr unsigned max(int a, unsigned b) { return max(unsigned(a), b); }
inline constexpr unsigned min(unsigned a, int b) { return min(a, unsigned(b)); }
inline constexpr unsigned max(unsigned a, int b) { return max(a, unsigned(b)); }

inline float rsqrtf(float x) { return 1.f / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1. / __builtin_sqrt(x); }
inline void sincos(float x, float* s, float* c) { sincosf(x, s, c); }
inline double cospi(double x) { return sin(M_PI * (0.5 - fabs(remainder(x, 2.0)))); }  // exact zeros
inline double sinpi(double x) {
  const double r = remainder(x, 2.0);
  return sin(M_PI * (fabs(r) > 0.5 ? copysign(1.0, r) - r : r));
}
inline void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
inline double rcbrt(double x) { return 1. / cbrt(x); }
inline double rhypot(double x, double y) { return 1. / hypot(x, y); }
inline double norm3d(double x, double y, double z) { return hypot(hypot(x, y), z); }
inline double rnorm3d(double x, double y, double z) { return 1. / norm3d(x, y, z); }
inline double norm4d(double x, double y, double z, double w) { return hypot(hypot(x, y), hypot(z, w)); }
inline double rnorm4d(double x, double y, double z, double w) { return 1. / norm4d(x, y, z, w); }
inline double normcdf(double x) { return 0.5 * erfc(-M_SQRT1_2 * x); }
inline float cospif(float x) { return float(cospi(x)); }
inline float sinpif(float x) { return float(sinpi(x)); }
inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
inline float rcbrtf(float x) { return 1.f / cbrtf(x); }
inline float rhypotf(float x, float y) { return 1.f / hypotf(x, y); }
inline float norm3df(float x, float y, float z) { return float(norm3d(x, y, z)); }
inline float rnorm3df(float x, float y, float z) { return float(rnorm3d(x, y, z)); }
inline float norm4df(float x, float y, float z, float w) { return float(norm4d(x, y, z, w)); }
inline float rnorm4df(float x, float y, float z, float w) { return float(rnorm4d(x, y, z, w)); }
inline float normcdff(float x) { return float(normcdf(x)); }
inline float fdividef(float a, float b) { return a / b; }
// Multiplies by a reciprocal, which is 0 above 2^126, where it would be subnormal
inline float __fdividef(float a, float b) {
  return __builtin_fabsf(b) > 0x1p126f ? a * __builtin_copysignf(0.f, b) : a / b;
}
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
inline float __tanhf(float x) { return tanhf(x); }
inline float __saturatef(float x) { return __builtin_fminf(__builtin_fmaxf(x, 0.f), 1.f); }

namespace emulator {
// A value that g++ cannot contract into a fused multiply-add, as the _rn functions promise.
template <class T>
inline T rounded(T x) {
  asm("" : "+m"(x));
  return x;
}
}  // namespace emulator

inline float __fadd_rn(float a, float b) { return emulator::rounded(a + b); }
inline float __fsub_rn(float a, float b) { return emulator::rounded(a - b); }
inline float __fmul_rn(float a, float b) { return emulator::rounded(a * b); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.f / x; }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __frsqrt_rn(float x) { return float(1. / __builtin_sqrt(double(x))); }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return emulator::rounded(a + b); }
inline double __dmul_rn(double a, double b) { return emulator::rounded(a * b); }
inline double __dsub_rn(double a, double b) { return emulator::rounded(a - b); }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __drcp_rn(double x) { return 1. / x; }
inline double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }

inline int __float_as_int(float x) { return emulator::bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return emulator::bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return emulator::bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return emulator::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return emulator::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return emulator::bits_as<double>(x); }

namespace emulator {
// A conversion to an integer as in CUDA: out-of-range values give the nearest end. NaN gives 0 if both types have 32
// bits, and otherwise an integer of which only the highest bit is set (PTX ISA, cvt).
template <class To, class From>
inline To saturated(From x) {
  constexpr bool is_signed = To(-1) < To(0);
  constexpr To high = is_signed ? To((1ull << (8 * sizeof(To) - 1)) - 1) : To(-1), low = is_signed ? To(-high - 1) : 0;
  if (!(x == x)) return sizeof(From) == 4 && sizeof(To) <= 4 ? To(0) : To(1ull << (8 * sizeof(To) - 1));
  return x >= From(high) ? high : x <= From(low) ? low : To(x);
}
}  // namespace emulator

#define EMULATOR_TO_INTEGER(name, From, To)                                                 \
  inline To name##_rn(From x) { return emulator::saturated<To, From>(__builtin_rint(x)); }  \
  inline To name##_rz(From x) { return emulator::saturated<To, From>(__builtin_trunc(x)); } \
  inline To name##_ru(From x) { return emulator::saturated<To, From>(__builtin_ceil(x)); }  \
  inline To name##_rd(From x) { return emulator::saturated<To, From>(__builtin_floor(x)); }
EMULATOR_TO_INTEGER(__float2int, float, int)
EMULATOR_TO_INTEGER(__float2uint, float, unsigned)
EMULATOR_TO_INTEGER(__float2ll, float, long long)
EMULATOR_TO_INTEGER(__float2ull, float, unsigned long long)
EMULATOR_TO_INTEGER(__double2int, double, int)
EMULATOR_TO_INTEGER(__double2uint, double, unsigned)
EMULATOR_TO_INTEGER(__double2ll, double, long long)
EMULATOR_TO_INTEGER(__double2ull, double, unsigned long long)
#undef EMULATOR_TO_INTEGER
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline float __ll2float_rn(long long x) { return float(x); }
inline float __ull2float_rn(unsigned long long x) { return float(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return double(x); }
inline double __ull2double_rn(unsigned long long x) { return double(x); }
inline float __double2float_rn(double x) { return float(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  x = __builtin_bswap32(x);
  x = (x & 0x0f0f0f0fu) << 4 | (x >> 4 & 0x0f0f0f0fu);
  x = (x & 0x33333333u) << 2 | (x >> 2 & 0x33333333u);
  return (x & 0x55555555u) << 1 | (x >> 1 & 0x55555555u);
}
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)high << 32 | low) << (shift % 32) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)high << 32 | low) >> (shift % 32));
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift < 32 ? __funnelshift_l(low, high, shift) : low;
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift < 32 ? __funnelshift_r(low, high, shift) : high;
}
// Each nibble of the selector selects one of 8 bytes
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long both = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned s = selector >> (4 * i);
    const unsigned char byte = both >> (8 * (s & 7));
    result |= unsigned(s & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << (8 * i);
  }
  return result;
}
