// One sum of products as a tensor core computes it, for any numbers: see include/emulator/multiply.h.
#pragma once
#include <math.h>
#include <stdint.h>

#include <algorithm>

#include "../include/emulator/multiply.h"

namespace emulator::sums {

constexpr int PLACES = 25;                                 // binary places after the point that a term keeps
constexpr int OF_A_ZERO = -133;                            // the exponent by which a term of zero is aligned
constexpr int LEAST_OF_HALF = -14, LEAST_OF_FLOAT = -126;  // exponents of the smallest normal numbers
constexpr int MAX_K = 16;

struct Term {
  int64_t significand;  // in units of 2^-23; for a product, 2^-46
  int exponent;         // for subnormal numbers, that of the smallest normal one
};

inline Term split(float x, int least) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const int field = bits >> 23 & 255, exponent = std::max(field, 1) - 127;
  int64_t significand = (bits & 0x7fffff) | (field ? 0x800000 : 0);
  significand >>= std::max(least - exponent, 0);
  return {x < 0 ? -significand : significand, std::max(exponent, least)};
}

// Truncates to a float. If a half is rounded later, the last bit tells whether anything was cut off.
inline float cut(double x, Accumulators accumulators) {
  if (fabs(x) >= 0x1p128) return x < 0 ? -INFINITY : INFINITY;
  int exponent;
  frexp(x, &exponent);
  const double unit = ldexp(1, std::max(exponent - 24, -149)), kept = trunc(x / unit) * unit + 0.0;  // no -0
  uint32_t bits = __builtin_bit_cast(uint32_t, float(kept));
  if (accumulators == Accumulators::halves && kept != x) bits |= 1;
  return __builtin_bit_cast(float, bits);
}

inline float sum_of_any(const float* a, const float* b, int b_step, int k, float c, Element element,
                        Accumulators accumulators) {
  double special = c;
  for (int l = 0; l < k; l++) special += double(a[l]) * b[l * b_step];
  if (special != special) return __builtin_bit_cast(float, 0x7fffffff);
  if (isinf(special)) return float(special);

  const int least = element == Element::half ? LEAST_OF_HALF : LEAST_OF_FLOAT;
  Term terms[MAX_K + 1] = {split(c, accumulators == Accumulators::halves ? LEAST_OF_HALF : LEAST_OF_FLOAT)};
  terms[0].significand <<= 23;
  for (int l = 0; l < k; l++) {
    const Term x = split(a[l], least), y = split(b[l * b_step], least);
    terms[l + 1] = {x.significand * y.significand, x.exponent + y.exponent};
  }
  int largest = OF_A_ZERO;
  for (const Term& term : terms)
    if (term.significand) largest = std::max(largest, term.exponent);
  int64_t sum = 0;
  for (const Term& term : terms) {
    const int lost = 46 - PLACES + largest - term.exponent;
    if (term.significand && lost < 63) sum += term.significand / (int64_t(1) << lost);
  }
  return cut(ldexp(double(sum), largest - PLACES), accumulators);
}

}  // namespace emulator::sums
