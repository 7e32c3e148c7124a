// Part of kernel.cu: the factor of a line.

// The power of two that brings a magnitude, given as the bits of a float, into the range from 2^14 to below 2^15.
__device__ __forceinline__ float factor_of(unsigned largest) {
  const int exponent = int(largest >> 23) - 127;
  if (largest == 0) return 1.0f;
  if (exponent < -104 || exponent > 114) return __uint_as_float(0x7fc00000);  // NaN: see Hazards
  return __uint_as_float(unsigned(127 + 14 - exponent) << 23);
}
