// Rounding once, and in a given direction: __fadd_rz() and its like.
//
// The exact result is computed as a double, rounded to odd: if a double cannot represent it, the last bit is 1. No
// float, half or bfloat, and no midpoint between two of them, has this bit, so that the second rounding still sees on
// which side of it the exact result is (Boldo, Melquiond 2008).
#pragma once
#include <type_traits>

#include "math.h"

namespace emulator {

inline double odd_sum(double a, double b) {
  const double sum = a + b, part = sum - a, lost = (a - (sum - part)) + (b - part);  // Knuth's exact error of a sum
  if (!(lost < 0 || lost > 0)) return sum;
  const long long bits = bits_as<long long>(sum);
  return bits & 1 ? sum : bits_as<double>((lost > 0) == (sum > 0) ? bits + 1 : bits - 1);
}
template <class T>
inline double odd_double(T x) {
  if constexpr (sizeof(T) < 8)
    return x;
  else
    return odd_sum(0x1p32 * double(x >> 32), double(uint32_t(x)));
}

enum class Toward { zero, up, down };

// T is float, half or bfloat, which convert to nearest.
template <class T, Toward toward>
inline T directed(double exact) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
  constexpr Bits SIGN = Bits(1) << (8 * sizeof(Bits) - 1);
  const T near = exact == exact ? T(exact) : T(float(exact));  // conversions of a double keep its NaN
  const bool up = toward == Toward::up || (toward == Toward::zero && exact < 0);
  if (!(up ? float(near) < exact : float(near) > exact)) return near;
  const Bits bits = bits_as<Bits>(near);
  if (!(bits & ~SIGN)) return bits_as<T>(Bits(up ? 1 : SIGN | 1));
  return bits_as<T>(Bits(up == !(bits & SIGN) ? bits + 1 : bits - 1));
}
template <Toward toward>
inline float directed_sum(double a, double b) {
  // Rounded down, the sum of opposite numbers is -0 (IEEE 754, 6.3)
  if (toward == Toward::down && a == -b && (__builtin_signbit(a) || __builtin_signbit(b))) return -0.f;
  return directed<float, toward>(odd_sum(a, b));
}

}  // namespace emulator

#define EMULATOR_ONE_DIRECTION(name, direction, parameters, value) \
  inline float name parameters {                                   \
    constexpr auto toward = emulator::Toward::direction;           \
    return value;                                                  \
  }
#define EMULATOR_DIRECTED(name, parameters, value)           \
  EMULATOR_ONE_DIRECTION(name##_rz, zero, parameters, value) \
  EMULATOR_ONE_DIRECTION(name##_ru, up, parameters, value)   \
  EMULATOR_ONE_DIRECTION(name##_rd, down, parameters, value)
#define EMULATOR_DIRECTED_VALUE(name, parameters, exact) \
  EMULATOR_DIRECTED(name, parameters, (emulator::directed<float, toward>(exact)))
EMULATOR_DIRECTED(__fadd, (float a, float b), emulator::directed_sum<toward>(a, b))
EMULATOR_DIRECTED(__fsub, (float a, float b), emulator::directed_sum<toward>(a, -b))
EMULATOR_DIRECTED(__fmaf, (float a, float b, float c), emulator::directed_sum<toward>(double(a) * b, c))
EMULATOR_DIRECTED_VALUE(__fmul, (float a, float b), double(a) * b)
EMULATOR_DIRECTED_VALUE(__fdiv, (float a, float b), double(a) / b)
EMULATOR_DIRECTED_VALUE(__frcp, (float x), 1. / x)
EMULATOR_DIRECTED_VALUE(__fsqrt, (float x), __builtin_sqrt(double(x)))
EMULATOR_DIRECTED_VALUE(__double2float, (double x), x)
EMULATOR_DIRECTED_VALUE(__int2float, (int x), x)
EMULATOR_DIRECTED_VALUE(__uint2float, (unsigned x), x)
EMULATOR_DIRECTED_VALUE(__ll2float, (long long x), emulator::odd_double(x))
EMULATOR_DIRECTED_VALUE(__ull2float, (unsigned long long x), emulator::odd_double(x))
#undef EMULATOR_DIRECTED_VALUE
#undef EMULATOR_DIRECTED
#undef EMULATOR_ONE_DIRECTION
