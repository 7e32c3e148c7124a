// Part of kernel.cu: the range of a line.

// Of a line: the largest magnitude and the least one that is not zero, as bits of floats, and whether there are zeros.
struct Range {
  unsigned largest = 0, least = ~0u, zeros = 0;
  __device__ __forceinline__ void add(float x) {
    const unsigned magnitude = __float_as_uint(x) & 0x7fffffffu;
    largest = max(largest, magnitude);
    least = min(least, magnitude - 1);  // zero becomes the largest unsigned number
    zeros = max(zeros, magnitude - 1);
  }
  __device__ __forceinline__ void add(const Range& other) {
    largest = max(largest, other.largest);
    least = min(least, other.least);
    zeros = max(zeros, other.zeros);
  }
  __device__ __forceinline__ Range of_lane(int mask) const {  // the range of the lane whose number differs in `mask`
    Range other;
    other.largest = __shfl_xor_sync(~0u, largest, mask);
    other.least = __shfl_xor_sync(~0u, least, mask);
    other.zeros = __shfl_xor_sync(~0u, zeros, mask);
    return other;
  }
  // What is kept of it: 8 bits for the exponent of the largest, 8 for that of the least, and one for zeros.
  __device__ __forceinline__ int packed() const {
    return int(largest >> 23 << 8 | (least >> 23 & 255) | (zeros == ~0u) << 16);
  }
};

// What halves may lose of a line: see Hazards in kernel.cu.
enum { UNEVEN = 1, ZEROS = 2 };

// The packed ranges of the parts of a line, put together.
struct Packed {
  int largest = 0, least = 255, zeros = 0;
  __device__ __forceinline__ void add(int range) {
    largest = max(largest, range >> 8 & 255);
    least = min(least, range & 255);
    zeros |= range >> 16;
  }
  // UNEVEN if elements that are not zero are more than 2^SPREAD apart, and ZEROS if other elements are zero.
  __device__ __forceinline__ int kind() const {
    return largest == 0 ? 0 : (largest - least > SPREAD ? UNEVEN : 0) | (zeros ? ZEROS : 0);
  }
};
