// What half and bfloat16 have in common: arithmetic, comparisons and elementary functions. This is a part of half.h and
// bfloat.h, which define Number, Pair, and Raw, the bits of a number.
//
// Every operation rounds once, to nearest even: float has more than twice the digits of both, so rounding a float
// result that was exact or rounded once gives the same number (Figueroa 1995).

inline Number operator+(Number a) { return a; }
inline Number operator-(Number a) { return Number(-float(a)); }
inline Pair operator+(Pair a) { return a; }
inline Pair operator-(Pair a) { return Pair(-a.wide()); }
inline Number __hneg(Number a) { return -a; }
inline Pair __hneg2(Pair a) { return -a; }
inline Number __habs(Number a) { return Raw{(unsigned short)(a.bits & 0x7fff)}; }
inline Pair __habs2(Pair a) { return {__habs(a.x), __habs(a.y)}; }

#define EMULATOR_OPERATOR(op)                                                            \
  inline Number operator op(Number a, Number b) { return Number(float(a) op float(b)); } \
  inline Number& operator op## = (Number & a, Number b) { return a = a op b; }           \
  inline Pair operator op(Pair a, Pair b) { return Pair(a.wide() op b.wide()); }         \
  inline Pair& operator op## = (Pair & a, Pair b) { return a = a op b; }
#define EMULATOR_PAIRS(pairs, numbers) \
  inline Pair pairs(Pair a, Pair b) { return {numbers(a.x, b.x), numbers(a.y, b.y)}; }
// _sat: to [0, 1]; NaN becomes 0.
#define EMULATOR_ARITHMETIC(op, name)                                                              \
  EMULATOR_OPERATOR(op)                                                                            \
  inline Number __h##name(Number a, Number b) { return a op b; }                                   \
  inline Number __h##name##_rn(Number a, Number b) { return a op b; }                              \
  inline Number __h##name##_sat(Number a, Number b) { return Number(__saturatef(float(a op b))); } \
  inline Pair __h##name##2(Pair a, Pair b) { return a op b; }                                      \
  inline Pair __h##name##2_rn(Pair a, Pair b) { return a op b; }                                   \
  EMULATOR_PAIRS(__h##name##2_sat, __h##name##_sat)
EMULATOR_ARITHMETIC(+, add)
EMULATOR_ARITHMETIC(-, sub)
EMULATOR_ARITHMETIC(*, mul)
EMULATOR_OPERATOR(/)
inline Number __hdiv(Number a, Number b) { return a / b; }
inline Pair __h2div(Pair a, Pair b) { return a / b; }

#define EMULATOR_STEP(T, step, op, one)                  \
  inline T& operator step(T& a) { return a op## = one; } \
  inline T operator step(T& a, int) {                    \
    const T before = a;                                  \
    a op## = one;                                        \
    return before;                                       \
  }
EMULATOR_STEP(Number, ++, +, Number(1))
EMULATOR_STEP(Number, --, -, Number(1))
EMULATOR_STEP(Pair, ++, +, Pair(1, 1))
EMULATOR_STEP(Pair, --, -, Pair(1, 1))
#undef EMULATOR_STEP
#undef EMULATOR_ARITHMETIC
#undef EMULATOR_OPERATOR

// _relu: a negative result becomes 0, and a NaN becomes 0x7fff (PTX ISA, fma.relu).
inline Number __hfma(Number a, Number b, Number c) { return emulator::fused(a, b, c); }
inline Number __hfma_sat(Number a, Number b, Number c) { return Number(__saturatef(float(emulator::fused(a, b, c)))); }
inline Number __hfma_relu(Number a, Number b, Number c) {
  const float sum = float(emulator::fused(a, b, c));
  return Number(sum <= 0 ? 0.f : sum);
}
inline Pair __hfma2(Pair a, Pair b, Pair c) { return emulator::fused(a, b, c); }
inline Pair __hfma2_sat(Pair a, Pair b, Pair c) { return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)}; }
inline Pair __hfma2_relu(Pair a, Pair b, Pair c) { return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)}; }

inline bool __hisnan(Number a) { return float(a) != float(a); }
inline Pair __hisnan2(Pair a) { return {Number(__hisnan(a.x)), Number(__hisnan(a.y))}; }
inline int __hisinf(Number a) { return __builtin_isinf_sign(float(a)); }

// _nan: a NaN wins against a number.
#define EMULATOR_EXTREME(name)                                                             \
  inline Number __h##name(Number a, Number b) { return Number(name(float(a), float(b))); } \
  inline Number __h##name##_nan(Number a, Number b) {                                      \
    return __hisnan(a) || __hisnan(b) ? Number(Raw{0x7fff}) : __h##name(a, b);             \
  }                                                                                        \
  EMULATOR_PAIRS(__h##name##2, __h##name)                                                  \
  EMULATOR_PAIRS(__h##name##2_nan, __h##name##_nan)
EMULATOR_EXTREME(max)
EMULATOR_EXTREME(min)
#undef EMULATOR_EXTREME
#undef EMULATOR_PAIRS

// If a value is NaN, these functions return false, also __hne, and those with a u return true. The operator != returns
// true, and other operators false.
#define EMULATOR_COMPARISON_NAMED(name, end, expression)                                                          \
  inline bool __h##name##end(Number a, Number b) {                                                                \
    const bool ordered = !__builtin_isunordered(float(a), float(b));                                              \
    return expression;                                                                                            \
  }                                                                                                               \
  inline bool __hb##name##end##2(Pair a, Pair b) { return __h##name##end(a.x, b.x) && __h##name##end(a.y, b.y); } \
  inline Pair __h##name##end##2(Pair a, Pair b) {                                                                 \
    return {Number(__h##name##end(a.x, b.x)), Number(__h##name##end(a.y, b.y))};                                  \
  }                                                                                                               \
  inline unsigned __h##name##end##2_mask(Pair a, Pair b) {                                                        \
    return (__h##name##end(a.x, b.x) ? 0xffffu : 0) | (__h##name##end(a.y, b.y) ? 0xffff0000u : 0);               \
  }
#define EMULATOR_COMPARISON(op, name)                                          \
  inline bool operator op(Number a, Number b) { return float(a) op float(b); } \
  inline bool operator op(Pair a, Pair b) { return a.x op b.x && a.y op b.y; } \
  EMULATOR_COMPARISON_NAMED(name, , ordered && (a op b))                       \
  EMULATOR_COMPARISON_NAMED(name, u, !ordered || (a op b))
EMULATOR_COMPARISON(==, eq)
EMULATOR_COMPARISON(!=, ne)
EMULATOR_COMPARISON(<, lt)
EMULATOR_COMPARISON(<=, le)
EMULATOR_COMPARISON(>, gt)
EMULATOR_COMPARISON(>=, ge)
#undef EMULATOR_COMPARISON
#undef EMULATOR_COMPARISON_NAMED

#define EMULATOR_FUNCTION(name, expression) \
  inline Number h##name(Number h) {         \
    const float x = float(h);               \
    return Number(float(expression));       \
  }                                         \
  inline Pair h2##name(Pair h) { return {h##name(h.x), h##name(h.y)}; }
EMULATOR_FUNCTION(exp, expf(x))
EMULATOR_FUNCTION(exp2, exp2f(x))
EMULATOR_FUNCTION(exp10, exp10f(x))
EMULATOR_FUNCTION(log, logf(x))
EMULATOR_FUNCTION(log2, log2f(x))
EMULATOR_FUNCTION(log10, log10f(x))
EMULATOR_FUNCTION(sqrt, sqrtf(x))
EMULATOR_FUNCTION(rsqrt, rsqrtf(x))
EMULATOR_FUNCTION(rcp, 1.f / x)
EMULATOR_FUNCTION(sin, sinf(x))
EMULATOR_FUNCTION(cos, cosf(x))
EMULATOR_FUNCTION(tanh, tanhf(x))
EMULATOR_FUNCTION(tanh_approx, tanhf(x))
EMULATOR_FUNCTION(floor, floorf(x))
EMULATOR_FUNCTION(ceil, ceilf(x))
EMULATOR_FUNCTION(trunc, truncf(x))
EMULATOR_FUNCTION(rint, rintf(x))
#undef EMULATOR_FUNCTION
