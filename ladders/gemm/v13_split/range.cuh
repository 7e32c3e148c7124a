// Part of kernel.cu: the range of a line.

// What halves may lose of a line: see Hazards in kernel.cu.
enum { UNEVEN = 1, ZEROS = 2 };

// The largest magnitude of a line and the least one that is not zero, as bits of floats, and whether there are zeros.
struct Range {
  unsigned largest = 0, least = ~0u, zeros = 0;
  __device__ __forceinline__ void add(float x) {
    const unsigned magnitude = __float_as_uint(x) & 0x7fffffffu;
    largest = max(largest, magnitude);
    if (magnitude == 0)
      zeros = 1;
    else
      least = min(least, magnitude);
  }
  // Most often there is no zero. That is tested once, as the warps that split late have little time.
  __device__ __forceinline__ void add(const float (&x)[8]) {
    unsigned least_of_all = ~0u;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const unsigned magnitude = __float_as_uint(x[i]) & 0x7fffffffu;
      largest = max(largest, magnitude);
      least_of_all = min(least_of_all, magnitude);
    }
    if (least_of_all > 0) {
      least = min(least, least_of_all);
      return;
    }
#pragma unroll
    for (float each : x) add(each);
  }
  __device__ __forceinline__ void add(const Range& other) {
    largest = max(largest, other.largest);
    least = min(least, other.least);
    zeros |= other.zeros;
  }
  __device__ __forceinline__ Range of_lane(int mask) const {  // the range of the lane whose number differs in `mask`
    Range other;
    other.largest = __shfl_xor_sync(~0u, largest, mask);
    other.least = __shfl_xor_sync(~0u, least, mask);
    other.zeros = __shfl_xor_sync(~0u, zeros, mask);
    return other;
  }
  // UNEVEN if elements that are not zero are more than 2^SPREAD apart, and ZEROS if other elements are zero.
  __device__ __forceinline__ int kind() const {
    return largest == 0 ? 0 : ((largest >> 23) - (least >> 23) > SPREAD ? UNEVEN : 0) | (zeros ? ZEROS : 0);
  }
};
