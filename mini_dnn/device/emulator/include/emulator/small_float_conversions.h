// Conversions of half and bfloat16. This is a part of half.h and bfloat.h, which define Number, Pair, Raw, and NAMED(a,
// b), the name of a function: a##half##b or a##bfloat16##b.

inline Number NAMED(__float2, )(float f) { return Number(f); }
inline Number NAMED(__double2, )(double d) { return Number(d); }
inline float NAMED(__, 2float)(Number h) { return float(h); }
inline unsigned short NAMED(__, _as_ushort)(Number h) { return h.bits; }
inline short NAMED(__, _as_short)(Number h) { return short(h.bits); }
inline Number NAMED(__ushort_as_, )(unsigned short bits) { return Raw{bits}; }
inline Number NAMED(__short_as_, )(short bits) { return Raw{(unsigned short)bits}; }

inline Pair NAMED(make_, 2)(Number x, Number y) { return {x, y}; }
inline Pair NAMED(__halves2, 2)(Number x, Number y) { return {x, y}; }
inline Pair NAMED(__float2, 2_rn)(float f) { return {Number(f), Number(f)}; }
inline Pair NAMED(__floats2, 2_rn)(float x, float y) { return Pair(emulator::float_x4{x, y}); }
inline Pair NAMED(__float22, 2_rn)(float2 f) { return Pair(emulator::float_x4{f.x, f.y}); }
inline float2 NAMED(__, 22float2)(Pair h) {
  const emulator::float_x4 f = h.wide();
  return {f[0], f[1]};
}
inline float __low2float(Pair h) { return float(h.x); }
inline float __high2float(Pair h) { return float(h.y); }
inline Number NAMED(__low2, )(Pair h) { return h.x; }
inline Number NAMED(__high2, )(Pair h) { return h.y; }
inline Pair NAMED(__low2, 2)(Pair h) { return {h.x, h.x}; }
inline Pair NAMED(__high2, 2)(Pair h) { return {h.y, h.y}; }
inline Pair NAMED(__lows2, 2)(Pair a, Pair b) { return {a.x, b.x}; }
inline Pair NAMED(__highs2, 2)(Pair a, Pair b) { return {a.y, b.y}; }
inline Pair __lowhigh2highlow(Pair h) { return {h.y, h.x}; }

#define EMULATOR_DIRECTION(from, T, end, toward)                                          \
  inline Number NAMED(__##from##2, end)(T x) {                                            \
    return emulator::directed<Number, emulator::Toward::toward>(emulator::odd_double(x)); \
  }
#define EMULATOR_FROM(from, T)                                     \
  inline Number NAMED(__##from##2, _rn)(T x) { return Number(x); } \
  EMULATOR_DIRECTION(from, T, _rz, zero)                           \
  EMULATOR_DIRECTION(from, T, _ru, up)                             \
  EMULATOR_DIRECTION(from, T, _rd, down)
#define EMULATOR_TO(to, T)                                                                             \
  inline T NAMED(__, 2##to##_rn)(Number h) { return emulator::saturated<T, float>(rintf(float(h))); }  \
  inline T NAMED(__, 2##to##_rz)(Number h) { return emulator::saturated<T, float>(truncf(float(h))); } \
  inline T NAMED(__, 2##to##_ru)(Number h) { return emulator::saturated<T, float>(ceilf(float(h))); }  \
  inline T NAMED(__, 2##to##_rd)(Number h) { return emulator::saturated<T, float>(floorf(float(h))); }
#define EMULATOR_INTEGER(name, T) \
  EMULATOR_FROM(name, T)          \
  EMULATOR_TO(name, T)
EMULATOR_FROM(float, float)
EMULATOR_INTEGER(short, short)
EMULATOR_INTEGER(ushort, unsigned short)
EMULATOR_INTEGER(int, int)
EMULATOR_INTEGER(uint, unsigned)
EMULATOR_INTEGER(ll, long long)
EMULATOR_INTEGER(ull, unsigned long long)
inline signed char NAMED(__, 2char_rz)(Number h) { return emulator::saturated<signed char, float>(float(h)); }
inline unsigned char NAMED(__, 2uchar_rz)(Number h) { return emulator::saturated<unsigned char, float>(float(h)); }
#undef EMULATOR_INTEGER
#undef EMULATOR_TO
#undef EMULATOR_FROM
#undef EMULATOR_DIRECTION
