// Conversions between bfloat16 and float; a bfloat16 is the upper half of a float.
#pragma once
#include <stdint.h>

namespace emulator {

inline float bfloat_to_float(uint16_t b) {
  const uint32_t bits = uint32_t(b) << 16;
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}
inline uint16_t float_to_bfloat(float f) {  // to nearest even
  uint32_t bits;
  __builtin_memcpy(&bits, &f, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;  // the NaN that the hardware produces
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Converts n of them to floats.
template <int n>
inline void bfloats_to_floats(const void* bfloats, float* floats) {
  for (int i = 0; i < n; i++) {
    uint16_t b;
    __builtin_memcpy(&b, static_cast<const char*>(bfloats) + 2 * i, 2);
    floats[i] = bfloat_to_float(b);
  }
}

}  // namespace emulator
