// __nv_bfloat16 and __nv_bfloat162 in namespace emulator::bf16; cuda_bf16.h makes them visible.
//
// A bfloat16 is the upper half of a float. As for half, every operation rounds once, to nearest even: float has more
// than twice its digits, so rounding a float result that was exact or rounded once gives the same number.
#pragma once
#include "bfloat_bits.h"
#include "half_bits.h"
#include "math.h"
#include "number_types.h"
#include "types.h"

namespace emulator {

inline uint16_t double_to_bfloat(double x) {
  if (x > -0x1p-126 && x < 0x1p-126) {  // also subnormal in float: doubles of this size are 2^-133 apart
    const double rounded = (x + 0x1.8p-81) - 0x1.8p-81;
    return float_to_bfloat(__builtin_copysignf(float(rounded), float(x)));
  }
  return x == x ? float_to_bfloat(round_to_odd(x)) : quiet_nan(x, 7);
}

namespace bf16 {

struct __nv_bfloat16_raw {
  unsigned short x;
};

struct alignas(2) __nv_bfloat16 {
  unsigned short bits;

  __nv_bfloat16() = default;
  __nv_bfloat16(const __nv_bfloat16_raw& raw) : bits(raw.x) {}
  __nv_bfloat16(float f) : bits(emulator::float_to_bfloat(f)) {}
  __nv_bfloat16(double d) : bits(emulator::double_to_bfloat(d)) {}
  __nv_bfloat16(int i) : bits(emulator::double_to_bfloat(i)) {}
  __nv_bfloat16(unsigned i) : bits(emulator::double_to_bfloat(i)) {}
  __nv_bfloat16(short i) : bits(emulator::float_to_bfloat(i)) {}
  __nv_bfloat16(unsigned short i) : bits(emulator::float_to_bfloat(i)) {}
  operator float() const { return emulator::bfloat_to_float(bits); }
  operator __nv_bfloat16_raw() const { return {bits}; }
};
typedef __nv_bfloat16 nv_bfloat16;

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;

  __nv_bfloat162() = default;
  __nv_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) : x(x), y(y) {}
  EMULATOR_COPY_PAIR(__nv_bfloat162)
};
typedef __nv_bfloat162 nv_bfloat162;

#define EMULATOR_BFLOAT_OPERATOR(op, name)                                                                           \
  inline __nv_bfloat16 operator op(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat16(float(a) op float(b)); } \
  inline __nv_bfloat16& operator op## = (__nv_bfloat16 & a, __nv_bfloat16 b) { return a = a op b; }                  \
  inline __nv_bfloat162 operator op(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x op b.x, a.y op b.y}; }         \
  inline __nv_bfloat162& operator op## = (__nv_bfloat162 & a, __nv_bfloat162 b) { return a = a op b; }               \
  inline __nv_bfloat16 __h##name(__nv_bfloat16 a, __nv_bfloat16 b) { return a op b; }
EMULATOR_BFLOAT_OPERATOR(+, add)
EMULATOR_BFLOAT_OPERATOR(-, sub)
EMULATOR_BFLOAT_OPERATOR(*, mul)
EMULATOR_BFLOAT_OPERATOR(/, div)
#undef EMULATOR_BFLOAT_OPERATOR
inline __nv_bfloat16 operator-(__nv_bfloat16 a) { return __nv_bfloat16_raw{(unsigned short)(a.bits ^ 0x8000)}; }
inline __nv_bfloat16 operator+(__nv_bfloat16 a) { return a; }
inline __nv_bfloat162 operator-(__nv_bfloat162 a) { return {-a.x, -a.y}; }
inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b) { return a + b; }
inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b) { return a - b; }
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) { return a * b; }
inline __nv_bfloat16 __hneg(__nv_bfloat16 a) { return -a; }
inline __nv_bfloat16 __habs(__nv_bfloat16 a) { return __nv_bfloat16_raw{(unsigned short)(a.bits & 0x7fff)}; }
inline __nv_bfloat16 __hmax(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat16(max(float(a), float(b))); }
inline __nv_bfloat16 __hmin(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat16(min(float(a), float(b))); }

// The functions return false if a value is NaN, also __hne; the operator != returns true.
#define EMULATOR_BFLOAT_COMPARISON(op, name)                                                 \
  inline bool operator op(__nv_bfloat16 a, __nv_bfloat16 b) { return float(a) op float(b); } \
  inline bool __h##name(__nv_bfloat16 a, __nv_bfloat16 b) { return a op b && a == a && b == b; }
EMULATOR_BFLOAT_COMPARISON(==, eq)
EMULATOR_BFLOAT_COMPARISON(!=, ne)
EMULATOR_BFLOAT_COMPARISON(<, lt)
EMULATOR_BFLOAT_COMPARISON(<=, le)
EMULATOR_BFLOAT_COMPARISON(>, gt)
EMULATOR_BFLOAT_COMPARISON(>=, ge)
#undef EMULATOR_BFLOAT_COMPARISON
inline bool __hisnan(__nv_bfloat16 a) { return (a.bits & 0x7fff) > 0x7f80; }
inline int __hisinf(__nv_bfloat16 a) { return (a.bits & 0x7fff) != 0x7f80 ? 0 : a.bits >> 15 ? -1 : 1; }

inline __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16(f); }
inline __nv_bfloat16 __double2bfloat16(double d) { return __nv_bfloat16(d); }
inline float __bfloat162float(__nv_bfloat16 b) { return float(b); }
inline __nv_bfloat16 __int2bfloat16_rn(int i) { return __nv_bfloat16(i); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.bits; }
inline short __bfloat16_as_short(__nv_bfloat16 b) { return short(b.bits); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16_raw{bits}; }
inline __nv_bfloat16 __short_as_bfloat16(short bits) { return __nv_bfloat16_raw{(unsigned short)bits}; }

inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 b) { return {b, b}; }
inline __nv_bfloat162 __float2bfloat162_rn(float f) { return {__nv_bfloat16(f), __nv_bfloat16(f)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 f) { return {__nv_bfloat16(f.x), __nv_bfloat16(f.y)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 b) { return {float(b.x), float(b.y)}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 b) { return b.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 b) { return b.y; }
inline float __low2float(__nv_bfloat162 b) { return float(b.x); }
inline float __high2float(__nv_bfloat162 b) { return float(b.y); }

}  // namespace bf16

template <>
constexpr bool is_half<bf16::__nv_bfloat16> = true;
template <>
constexpr bool is_half_pair<bf16::__nv_bfloat162> = true;

}  // namespace emulator
