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
inline __half __hfma(__half a, __half b, __half c) {
  return __half(fused(float_x4{float(a)}, float_x4{float(b)}, float_x4{float(c)})[0]);
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return __half2(fused(a.wide(), b.wide(), c.wide())); }
inline __half __hmax(__half a, __half b) { return __half(max(float(a), float(b))); }
inline __half __hmin(__half a, __half b) { return __half(min(float(a), float(b))); }
inline __half2 __hmax2(__half2 a, __half2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
inline __half2 __hmin2(__half2 a, __half2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
// A negative result becomes 0, and a NaN becomes 0x7fff (PTX ISA, fma.relu).
inline __half __hfma_relu(__half a, __half b, __half c) {
  const __half sum = __hfma(a, b, c);
  if ((sum.bits & 0x7fff) > 0x7c00) return __half_raw{0x7fff};
  return sum.bits >> 15 ? __half(0.0f) : sum;
}
inline __half2 __hfma2_relu(__half2 a, __half2 b, __half2 c) {
  return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};
}

// The functions return false if a value is NaN, also __hne; the operator != returns true.
#define EMULATOR_HALF_COMPARISON(op, name)                                                               \
  inline bool operator op(__half a, __half b) { return float(a) op float(b); }                           \
  inline bool __h##name(__half a, __half b) { return a op b && a == a && b == b; }                       \
  inline bool __hb##name##2(__half2 a, __half2 b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); } \
  inline __half2 __h##name##2(__half2 a, __half2 b) {                                                    \
    return {__half(__h##name(a.x, b.x) ? 1 : 0), __half(__h##name(a.y, b.y) ? 1 : 0)};                   \
  }
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
