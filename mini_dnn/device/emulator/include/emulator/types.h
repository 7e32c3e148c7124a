// CUDA's built-in vector types, with the alignment required by the CUDA Programming Guide (B.3).
#pragma once

namespace emulator::fp16 {
struct __half;
}

// clang++ checks the alignment of references, but not that of a struct that it copies by itself.
#if defined(EMULATOR_CHECKED) && defined(__clang__)
#define EMULATOR_COPY __attribute__((always_inline)) constexpr
#define EMULATOR_COPY_PAIR(name)                        \
  EMULATOR_COPY name(const name& v) : x(v.x), y(v.y) {} \
  EMULATOR_COPY name& operator=(const name& v) {        \
    x = v.x, y = v.y;                                   \
    return *this;                                       \
  }
#define EMULATOR_COPY_2(T, name)                    \
  name() = default;                                 \
  EMULATOR_COPY name(T x, T y = {}) : x(x), y(y) {} \
  EMULATOR_COPY_PAIR(name)
#define EMULATOR_COPY_4(T, name)                                                    \
  name() = default;                                                                 \
  EMULATOR_COPY name(T x, T y = {}, T z = {}, T w = {}) : x(x), y(y), z(z), w(w) {} \
  EMULATOR_COPY name(const name& v) : x(v.x), y(v.y), z(v.z), w(v.w) {}             \
  EMULATOR_COPY name& operator=(const name& v) {                                    \
    x = v.x, y = v.y, z = v.z, w = v.w;                                             \
    return *this;                                                                   \
  }
#else
#define EMULATOR_COPY_PAIR(name)
#define EMULATOR_COPY_2(T, name)
#define EMULATOR_COPY_4(T, name)
#endif

#define EMULATOR_VECTORS(T, name, align2, align4)                              \
  struct name##1 { T x; };                                                     \
  struct __attribute__((aligned(align2))) name##2 {                            \
    T x, y;                                                                    \
    EMULATOR_COPY_2(T, name##2)                                                \
  };                                                                           \
  struct name##3 { T x, y, z; };                                               \
  struct __attribute__((aligned(align4))) name##4 {                            \
    T x, y, z, w;                                                              \
    EMULATOR_COPY_4(T, name##4)                                                \
  };                                                                           \
  inline constexpr name##1 make_##name##1(T x) { return {x}; }                 \
  inline constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMULATOR_VECTORS(signed char, char, 2, 4)
EMULATOR_VECTORS(unsigned char, uchar, 2, 4)
EMULATOR_VECTORS(short, short, 4, 8)
EMULATOR_VECTORS(unsigned short, ushort, 4, 8)
EMULATOR_VECTORS(int, int, 8, 16)
EMULATOR_VECTORS(unsigned, uint, 8, 16)
EMULATOR_VECTORS(long, long, 16, 16)
EMULATOR_VECTORS(unsigned long, ulong, 16, 16)
EMULATOR_VECTORS(long long, longlong, 16, 16)
EMULATOR_VECTORS(unsigned long long, ulonglong, 16, 16)
EMULATOR_VECTORS(float, float, 8, 16)
EMULATOR_VECTORS(double, double, 16, 16)
#undef EMULATOR_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
