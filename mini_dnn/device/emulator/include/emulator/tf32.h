// Conversion to tf32; included by wmma_product.h. arithmetic.py counts its instructions, because a GPU needs about as
// many.
#pragma once

namespace emulator::wmma {

// Rounds to tf32, a float with 10 fraction bits: to nearest, ties away from zero (PTX ISA, cvt.rna.tf32.f32).
inline float __float_to_tf32(float f) {
  const unsigned bits = __float_as_uint(f);
  return (bits & 0x7f800000u) == 0x7f800000u ? f : __uint_as_float((bits + 0x1000u) & ~0x1fffu);
}

}  // namespace emulator::wmma
