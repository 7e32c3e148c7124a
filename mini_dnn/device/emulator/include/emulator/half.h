// half and half2 in namespace emulator::fp16; cuda_fp16.h makes them visible.
#pragma once
#include "half_bits.h"
#include "math.h"
#include "number_types.h"
#include "rounding.h"
#include "types.h"

namespace emulator {

namespace fp16 {

struct __half_raw {
  unsigned short x;
};

struct alignas(2) __half {
  unsigned short bits;

  __half() = default;
  __half(const __half_raw& raw) : bits(raw.x) {}
  __half(float f) : bits(emulator::float_to_half(f)) {}
  __half(double d) : bits(emulator::double_to_half(d)) {}
  template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
  __half(T i) : bits(emulator::double_to_half(double(i))) {}
  operator float() const { return emulator::half_to_float(bits); }
  operator __half_raw() const { return {bits}; }
};
typedef __half half;
typedef __half nv_half;

struct alignas(4) __half2 {
  __half x, y;

  __half2() = default;
  __half2(__half x, __half y) : x(x), y(y) {}
  EMULATOR_COPY_PAIR(__half2)
  explicit __half2(emulator::float_x4 f) {
    const uint32_t both = emulator::float_to_half2(f);
    __builtin_memcpy(this, &both, 4);
  }
  emulator::float_x4 wide() const {
    uint32_t both;
    __builtin_memcpy(&both, this, 4);
    return emulator::half2_to_float(both);
  }
};
typedef __half2 half2;
typedef __half2 nv_half2;

}  // namespace fp16

template <>
constexpr bool is_half<fp16::__half> = true;
template <>
constexpr bool is_half_pair<fp16::__half2> = true;

// a * b + c of two pairs with one rounding. The products are exact in float. The rounded sums are as good as exact,
// unless they are midpoints between two halves, or subnormal, where the midpoints are others. Sums in double are exact
// wherever that matters (half has 11 digits, and its exponents span 40).
inline float_x4 fused(float_x4 a, float_x4 b, float_x4 c) {
  typedef int int_x4 __attribute__((vector_size(16)));
  typedef long long long_x2 __attribute__((vector_size(16)));
  const float_x4 sum = a * b + c;
  const int_x4 magnitude = int_x4(sum) & 0x7fffffff;
  const int_x4 doubtful = ((magnitude & 0x1fff) == 0x1000) | ((magnitude < 0x38800000) & (magnitude != 0));
  if (long_x2(doubtful)[0] == 0) [[likely]]
    return sum;
  return float_x4{round_to_odd(double(a[0]) * b[0] + c[0]), round_to_odd(double(a[1]) * b[1] + c[1]), 0, 0};
}
inline fp16::__half fused(fp16::__half a, fp16::__half b, fp16::__half c) {
  return fp16::__half(fused(float_x4{float(a)}, float_x4{float(b)}, float_x4{float(c)})[0]);
}
inline fp16::__half2 fused(fp16::__half2 a, fp16::__half2 b, fp16::__half2 c) {
  return fp16::__half2(fused(a.wide(), b.wide(), c.wide()));
}

namespace fp16 {

#define Number __half
#define Raw __half_raw
#define Pair __half2
#define NAMED(a, b) a##half##b
#include "small_floats.h"
#include "small_float_conversions.h"
inline __half2 __half2half2(__half h) { return {h, h}; }
#undef NAMED
#undef Pair
#undef Raw
#undef Number

}  // namespace fp16
}  // namespace emulator
