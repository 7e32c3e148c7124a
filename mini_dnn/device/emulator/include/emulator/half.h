// half and half2 in namespace emulator::fp16; cuda_fp16.h makes them visible.
//
// Every operation rounds once, to nearest even: float has more than twice the digits of half, so rounding a float
// result that was exact or rounded once gives the same number (Figueroa 1995).
#pragma once
#include "half_bits.h"
#include "math.h"
#include "number_types.h"
#include "types.h"

namespace emulator::fp16 {

struct __half_raw {
  unsigned short x;
};

struct alignas(2) __half {
  unsigned short bits;

  __half() = default;
  __half(const __half_raw& raw) : bits(raw.x) {}
  __half(float f) : bits(emulator::float_to_half(f)) {}
  __half(double d) : bits(emulator::double_to_half(d)) {}
  __half(int i) : bits(emulator::double_to_half(i)) {}
  __half(unsigned i) : bits(emulator::double_to_half(i)) {}
  __half(short i) : bits(emulator::float_to_half(i)) {}
  __half(unsigned short i) : bits(emulator::float_to_half(i)) {}
  __half(long long i) : bits(emulator::double_to_half(double(i))) {}
  __half(unsigned long long i) : bits(emulator::double_to_half(double(i))) {}
  operator float() const { return emulator::half_to_float(bits); }
  operator __half_raw() const { return {bits}; }
};
typedef __half half;

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

}  // namespace emulator::fp16

template <>
constexpr bool emulator::is_half<emulator::fp16::__half> = true;
template <>
constexpr bool emulator::is_half_pair<emulator::fp16::__half2> = true;

#include "half_arithmetic.h"
#include "half_functions.h"
