// Part of kernel.cu: the range of a line.

// The largest magnitude of a line and the least one that is not zero, as bits of floats.
struct Range {
  unsigned largest = 0, least = ~0u;
  __device__ __forceinline__ void add(float x) {
    const unsigned magnitude = __float_as_uint(x) & 0x7fffffffu;
    largest = max(largest, magnitude);
    if (magnitude != 0) least = min(least, magnitude);
  }
  __device__ __forceinline__ void add(const Range& other) {
    largest = max(largest, other.largest);
    least = min(least, other.least);
  }
  __device__ __forceinline__ Range of_lane(int mask) const {  // the range of the lane whose number differs in `mask`
    Range other;
    other.largest = __shfl_xor_sync(~0u, largest, mask);
    other.least = __shfl_xor_sync(~0u, least, mask);
    return other;
  }
  __device__ __forceinline__ bool is_wide() const { return largest != 0 && (largest >> 23) - (least >> 23) > SPREAD; }
};
