// __nv_bfloat16 and __nv_bfloat162 in namespace emulator::bf16; cuda_bf16.h makes them visible.
#pragma once
#include "bfloat_bits.h"
#include "half_bits.h"
#include "math.h"
#include "number_types.h"
#include "rounding.h"
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
  template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
  __nv_bfloat16(T i) : bits(emulator::double_to_bfloat(emulator::odd_double(i))) {}
  operator float() const { return emulator::bfloat_to_float(bits); }
  operator __nv_bfloat16_raw() const { return {bits}; }
};
typedef __nv_bfloat16 nv_bfloat16;

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;

  __nv_bfloat162() = default;
  __nv_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) : x(x), y(y) {}
  EMULATOR_COPY_PAIR(__nv_bfloat162)
  explicit __nv_bfloat162(emulator::float_x4 f) : x(f[0]), y(f[1]) {}
  emulator::float_x4 wide() const { return emulator::float_x4{float(x), float(y)}; }
};
typedef __nv_bfloat162 nv_bfloat162;

}  // namespace bf16

template <>
constexpr bool is_half<bf16::__nv_bfloat16> = true;
template <>
constexpr bool is_half_pair<bf16::__nv_bfloat162> = true;

// a * b + c with one rounding. Products are exact in double.
inline bf16::__nv_bfloat16 fused(bf16::__nv_bfloat16 a, bf16::__nv_bfloat16 b, bf16::__nv_bfloat16 c) {
  const double sum = odd_sum(double(float(a)) * float(b), float(c));
  if (sum != sum) return bf16::__nv_bfloat16_raw{0x7fff};  // conversions from double keep a NaN
  return bf16::__nv_bfloat16(sum);
}
inline bf16::__nv_bfloat162 fused(bf16::__nv_bfloat162 a, bf16::__nv_bfloat162 b, bf16::__nv_bfloat162 c) {
  return {fused(a.x, b.x, c.x), fused(a.y, b.y, c.y)};
}

namespace bf16 {

#define Number __nv_bfloat16
#define Raw __nv_bfloat16_raw
#define Pair __nv_bfloat162
#define NAMED(a, b) a##bfloat16##b
#include "small_floats.h"
#include "small_float_conversions.h"
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 b) { return {b, b}; }
#undef NAMED
#undef Pair
#undef Raw
#undef Number

}  // namespace bf16
}  // namespace emulator
