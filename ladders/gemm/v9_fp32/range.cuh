// Part of kernel.cu: the range of a line, and how much of it halves may lose.

constexpr int SPREAD = 16;  // a line is uneven if its nonzero elements are more powers of two apart than this
constexpr int FAR = 15;     // powers of two, see Hazards in kernel.cu
constexpr float LEAST_SUM = 1 << 13;

// What the product has to know about a line.
struct __align__(8) Line {
  float inverse;   // of its factor
  unsigned doubt;  // twice the sum of the distances of its elements, at most EXTREME, and odd if it is uneven
};
constexpr unsigned EXTREME = 1u << 30;  // also the doubt of a line whose sums may not be finite

// If the doubts of a row and a column add up to this, their sum is examined.
__device__ __forceinline__ unsigned doubtful_from(int k) { return unsigned(min(2ll * FAR * k, (long long)EXTREME)); }

// The largest magnitude of a line and the least one that is not zero (or slightly less), as bits of floats, and the sum
// of the exponents. In the sum, a zero counts as if it were FAR from the largest element so far.
struct Range {
  unsigned largest = 0, least = ~0u, exponents = 0;
  // Adds elements, of which only the first `there` exist; the others are zero. Usually, no element is zero. This is
  // tested once for all of them, as the warps that split late have little time.
  template <int n>
  __device__ __forceinline__ void add(const float (&x)[n], int there = n) {
    unsigned magnitude[n], low = ~0u;
#pragma unroll
    for (int i = 0; i < n; i++) {
      magnitude[i] = __float_as_uint(x[i]) & 0x7fffffffu;
      largest = max(largest, magnitude[i]);
      low = min(low, magnitude[i]);
      exponents += magnitude[i] >> 23;
    }
    if (low > 0) {
      least = min(least, low);
      return;
    }
    int zeros = there - n;
#pragma unroll
    for (int i = 0; i < n; i++) {
      zeros += magnitude[i] == 0;
      least = min(least, magnitude[i] - 1);  // zero becomes the largest number
    }
    exponents += zeros * max(int(largest >> 23) - FAR, 0);
  }
  __device__ __forceinline__ void add(const Range& other) {
    largest = max(largest, other.largest);
    least = min(least, other.least);
    exponents += other.exponents;
  }
  __device__ __forceinline__ Range of_lane(int mask) const {  // the range of the lane whose number differs in `mask`
    Range other;
    other.largest = __shfl_xor_sync(~0u, largest, mask);
    other.least = __shfl_xor_sync(~0u, least, mask);
    other.exponents = __shfl_xor_sync(~0u, exponents, mask);
    return other;
  }
  __device__ __forceinline__ void add_lanes() {  // those of the other lanes of the warp
    largest = __reduce_max_sync(~0u, largest);
    least = __reduce_min_sync(~0u, least);
    exponents = __reduce_add_sync(~0u, exponents);
  }
  // The line, of k elements. If the sum of exponents overflows, the doubt is only larger.
  __device__ __forceinline__ Line line(int k) const {
    const int top = largest >> 23;
    if (largest == 0) return {0.0f, 0};
    const unsigned uneven = top - int(least >> 23) > SPREAD;
    const bool extreme = top < 127 - 104 || top > 127 + 48;
    const long long twice = extreme ? EXTREME : 2 * ((long long)top * k - exponents);
    return {1.0f / factor_of(largest), unsigned(min(twice, (long long)EXTREME)) + uneven};
  }
};
