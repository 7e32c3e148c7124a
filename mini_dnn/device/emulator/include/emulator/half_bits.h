// Conversions between IEEE binary16 and float, with the processor's own instructions (F16C) if it has them. Every NaN
// of a float becomes the half 0x7fff, as on a GPU.
#pragma once
#include <stdint.h>
#include <string.h>

namespace emulator {

typedef float float_x4 __attribute__((vector_size(16)));
typedef short short_x8 __attribute__((vector_size(16)));

#ifdef __F16C__

inline float half_to_float(uint16_t h) { return __builtin_ia32_vcvtph2ps(short_x8{short(h)})[0]; }

// Two at once, for half2.
typedef int int_x4 __attribute__((vector_size(16)));
inline float_x4 half2_to_float(uint32_t h) { return __builtin_ia32_vcvtph2ps(short_x8(int_x4{int(h)})); }
inline uint32_t float_to_half2(float_x4 f) {
  const int_x4 bits = f == f ? int_x4(f) : int_x4{} + 0x7fffe000;  // the NaN that is rounded to 0x7fff
  return int_x4(__builtin_ia32_vcvtps2ph(float_x4(bits), 0))[0];   // 0: to nearest even
}
// Written in this way, it has no branch, which could slow down a whole loop of a kernel.
inline uint16_t float_to_half(float f) { return float_to_half2(float_x4{f}); }

// n floats from n halves, a multiple of 4.
template <int n>
inline void halves_to_floats(const void* halves, float* floats) {
  typedef float float_x8 __attribute__((vector_size(32)));
  const char* from = static_cast<const char*>(halves);
  int i = 0;
  for (; i + 8 <= n; i += 8) {
    short_x8 h;
    __builtin_memcpy(&h, from + 2 * i, sizeof h);
    const float_x8 f = __builtin_ia32_vcvtph2ps256(h);
    __builtin_memcpy(floats + i, &f, sizeof f);
  }
  if (i < n) {
    typedef long long long_x2 __attribute__((vector_size(16)));
    long long h;
    __builtin_memcpy(&h, from + 2 * i, sizeof h);
    const float_x4 f = __builtin_ia32_vcvtph2ps(short_x8(long_x2{h}));
    __builtin_memcpy(floats + i, &f, sizeof f);
  }
}

#else

inline float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, rest = uint32_t(h & 0x7fff) << 13;
  uint32_t bits;
  if (rest >= 0x0f800000)
    bits = rest + 0x70000000;  // infinity and NaN also have the largest exponent here
  else if (rest >= 0x00800000)
    bits = rest + 0x38000000;
  else {  // subnormal: rest counts units of 2^-37
    const float small = float(rest) * 0x1p-37f;
    __builtin_memcpy(&bits, &small, 4);
  }
  bits |= sign;
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}

inline uint16_t float_to_half(float f) {
  uint32_t bits;
  __builtin_memcpy(&bits, &f, 4);
  const uint16_t sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return 0x7fff;
  if (bits >= 0x477ff000) return sign | 0x7c00;  // 65520 and more round to infinity
  if (bits < 0x38800000) {                       // below 2^-14: adding 0.5 rounds to units of 2^-24
    float small;
    __builtin_memcpy(&small, &bits, 4);
    small += 0.5f;
    __builtin_memcpy(&bits, &small, 4);
    return sign | uint16_t(bits - 0x3f000000);
  }
  return sign | uint16_t((bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13);
}

template <int n>
inline void halves_to_floats(const void* halves, float* floats) {
  for (int i = 0; i < n; i++) {
    uint16_t h;
    __builtin_memcpy(&h, static_cast<const char*>(halves) + 2 * i, 2);
    floats[i] = half_to_float(h);
  }
}
inline float_x4 half2_to_float(uint32_t h) { return float_x4{half_to_float(h & 0xffff), half_to_float(h >> 16), 0, 0}; }
inline uint32_t float_to_half2(float_x4 f) { return float_to_half(f[0]) | uint32_t(float_to_half(f[1])) << 16; }

#endif

// Rounds only once in effect: the double is first rounded to odd to a float, which has enough more digits than half
// that the last step sees what was lost (Boldo, Melquiond 2008).
inline float round_to_odd(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, 8);
  constexpr uint64_t lost = (1ull << 29) - 1;
  if (bits & lost) bits = (bits & ~lost) | 1ull << 29;
  __builtin_memcpy(&x, &bits, 8);
  return float(x);
}
// Conversions from double keep a NaN's sign and its highest digits, and make it quiet, as measured on an H100. Those
// from float do not.
inline uint16_t quiet_nan(double nan, unsigned digits) {
  uint64_t bits;
  __builtin_memcpy(&bits, &nan, 8);
  return uint16_t(bits >> 48 & 0x8000) | uint16_t((bits >> (52 - digits) | 1ull << (digits - 1)) & 0x7fff);
}
inline uint16_t double_to_half(double x) { return x == x ? float_to_half(round_to_odd(x)) : quiet_nan(x, 10); }

}  // namespace emulator
