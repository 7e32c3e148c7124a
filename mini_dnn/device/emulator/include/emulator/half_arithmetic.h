// Sums, products, quotients and comparisons of half and half2; included by half.h.
#pragma once

namespace emulator::fp16 {

#define EMULATOR_HALF_OPERATOR(op, name)                                                     \
  inline __half operator op(__half a, __half b) { return __half(float(a) op float(b)); }     \
  inline __half& operator op## = (__half & a, __half b) { return a = a op b; }               \
  inline __half2 operator op(__half2 a, __half2 b) { return __half2(a.wide() op b.wide()); } \
  inline __half2& operator op## = (__half2 & a, __half2 b) { return a = a op b; }            \
  inline __half __h##name(__half a, __half b) { return a op b; }
EMULATOR_HALF_OPERATOR(+, add)
EMULATOR_HALF_OPERATOR(-, sub)
EMULATOR_HALF_OPERATOR(*, mul)
EMULATOR_HALF_OPERATOR(/, div)
#undef EMULATOR_HALF_OPERATOR
inline __half operator-(__half a) { return __half_raw{(unsigned short)(a.bits ^ 0x8000)}; }
inline __half operator+(__half a) { return a; }
inline __half2 operator-(__half2 a) { return {-a.x, -a.y}; }
inline __half& operator++(__half& a) { return a += __half(1); }
inline __half& operator--(__half& a) { return a -= __half(1); }

inline __half2 __hadd2(__half2 a, __half2 b) { return a + b; }
inline __half2 __hsub2(__half2 a, __half2 b) { return a - b; }
inline __half2 __hmul2(__half2 a, __half2 b) { return a * b; }
inline __half2 __h2div(__half2 a, __half2 b) { return a / b; }
inline __half __hadd_rn(__half a, __half b) { return a + b; }
inline __half __hmul_rn(__half a, __half b) { return a * b; }
inline __half __hneg(__half a) { return -a; }
inline __half2 __hneg2(__half2 a) { return -a; }
inline __half __habs(__half a) { return __half_raw{(unsigned short)(a.bits & 0x7fff)}; }
inline __half2 __habs2(__half2 a) { return {__habs(a.x), __habs(a.y)}; }

// The product of two halves is exact in double, and so is every sum that is near the middle between two halves.
inline __half __hfma(__half a, __half b, __half c) {
  return __half_raw{emulator::double_to_half(double(float(a)) * float(b) + float(c))};
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  typedef double double_x4 __attribute__((vector_size(32)));
  typedef long long bits_x4 __attribute__((vector_size(32)));
  const double_x4 exact = __builtin_convertvector(a.wide(), double_x4) * __builtin_convertvector(b.wide(), double_x4) +
                          __builtin_convertvector(c.wide(), double_x4);
  const bits_x4 bits = bits_x4(exact), lost = bits & ((1ll << 29) - 1);  // as emulator::round_to_odd
  const bits_x4 odd = (bits - lost) | ((lost != 0) & (1ll << 29));
  return __half2(__builtin_convertvector(double_x4(odd), emulator::float_x4));
}
inline __half __hmax(__half a, __half b) { return __half(max(float(a), float(b))); }
inline __half __hmin(__half a, __half b) { return __half(min(float(a), float(b))); }
inline __half2 __hmax2(__half2 a, __half2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
inline __half2 __hmin2(__half2 a, __half2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
inline __half __hfma_relu(__half a, __half b, __half c) { return __hmax(__hfma(a, b, c), __half(0)); }
inline __half2 __hfma2_relu(__half2 a, __half2 b, __half2 c) {
  return __hmax2(__hfma2(a, b, c), __half2(__half(0), __half(0)));
}

#define EMULATOR_HALF_COMPARISON(op, name)                                             \
  inline bool operator op(__half a, __half b) { return float(a) op float(b); }         \
  inline bool __h##name(__half a, __half b) { return a op b; }                         \
  inline bool __hb##name##2(__half2 a, __half2 b) { return a.x op b.x && a.y op b.y; } \
  inline __half2 __h##name##2(__half2 a, __half2 b) { return {__half(a.x op b.x ? 1 : 0), __half(a.y op b.y ? 1 : 0)}; }
EMULATOR_HALF_COMPARISON(==, eq)
EMULATOR_HALF_COMPARISON(!=, ne)
EMULATOR_HALF_COMPARISON(<, lt)
EMULATOR_HALF_COMPARISON(<=, le)
EMULATOR_HALF_COMPARISON(>, gt)
EMULATOR_HALF_COMPARISON(>=, ge)
#undef EMULATOR_HALF_COMPARISON
inline bool __hisnan(__half a) { return (a.bits & 0x7fff) > 0x7c00; }
inline int __hisinf(__half a) { return (a.bits & 0x7fff) != 0x7c00 ? 0 : a.bits >> 15 ? -1 : 1; }

}  // namespace emulator::fp16
