// Conversions and elementary functions of half and half2; included by half.h.
#pragma once

namespace emulator::fp16 {

inline __half __float2half(float f) { return __half(f); }
inline __half __float2half_rn(float f) { return __half(f); }
inline __half __double2half(double d) { return __half(d); }
inline float __half2float(__half h) { return float(h); }
inline __half __int2half_rn(int i) { return __half(i); }
inline __half __uint2half_rn(unsigned i) { return __half(i); }
inline int __half2int_rn(__half h) { return __float2int_rn(h); }
inline int __half2int_rz(__half h) { return __float2int_rz(h); }
inline unsigned short __half_as_ushort(__half h) { return h.bits; }
inline short __half_as_short(__half h) { return short(h.bits); }
inline __half __ushort_as_half(unsigned short bits) { return __half_raw{bits}; }
inline __half __short_as_half(short bits) { return __half_raw{(unsigned short)bits}; }

inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half h) { return {h, h}; }
inline __half2 __float2half2_rn(float f) { return {__half(f), __half(f)}; }
inline __half2 __floats2half2_rn(float x, float y) { return __half2(emulator::float_x4{x, y}); }
inline __half2 __float22half2_rn(float2 f) { return __half2(emulator::float_x4{f.x, f.y}); }
inline float2 __half22float2(__half2 h) {
  const emulator::float_x4 f = h.wide();
  return {f[0], f[1]};
}
inline __half __low2half(__half2 h) { return h.x; }
inline __half __high2half(__half2 h) { return h.y; }
inline float __low2float(__half2 h) { return float(h.x); }
inline float __high2float(__half2 h) { return float(h.y); }
inline __half2 __low2half2(__half2 h) { return {h.x, h.x}; }
inline __half2 __high2half2(__half2 h) { return {h.y, h.y}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
inline __half2 __lowhigh2highlow(__half2 h) { return {h.y, h.x}; }

#define EMULATOR_HALF_FUNCTION(name, expression) \
  inline __half h##name(__half h) {              \
    const float x = float(h);                    \
    return __half(float(expression));            \
  }                                              \
  inline __half2 h2##name(__half2 h) { return {h##name(h.x), h##name(h.y)}; }
EMULATOR_HALF_FUNCTION(exp, expf(x))
EMULATOR_HALF_FUNCTION(exp2, exp2f(x))
EMULATOR_HALF_FUNCTION(log, logf(x))
EMULATOR_HALF_FUNCTION(log2, log2f(x))
EMULATOR_HALF_FUNCTION(sqrt, sqrtf(x))
EMULATOR_HALF_FUNCTION(rsqrt, rsqrtf(x))
EMULATOR_HALF_FUNCTION(rcp, 1.f / x)
EMULATOR_HALF_FUNCTION(sin, sinf(x))
EMULATOR_HALF_FUNCTION(cos, cosf(x))
EMULATOR_HALF_FUNCTION(floor, floorf(x))
EMULATOR_HALF_FUNCTION(ceil, ceilf(x))
EMULATOR_HALF_FUNCTION(trunc, truncf(x))
EMULATOR_HALF_FUNCTION(rint, rintf(x))
#undef EMULATOR_HALF_FUNCTION
inline __half htanh(__half h) { return __half(tanhf(float(h))); }

}  // namespace emulator::fp16
