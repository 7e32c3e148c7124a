// With SPLIT: powers of two that bring values into the range of halves, and fp32 arithmetic for all other values.
//
// Two halves keep the digits of a value from 2^-14 up to 65,504. The weights have one factor, and each band of the
// image has one, nearly always the USUAL one. While a band is packed, each thread checks its values, and the next
// barrier determines whether they all fit. If not, the band is packed again, with the factor that its largest value
// needs. If other values are then too small, sums have an error of a part of LEAST. This matters for small sums, which
// are computed again in plain fp32. If a band or the weights contain an infinity or NaN, all sums are computed again.
#pragma once

constexpr int USUAL = 7;                   // times 2^7: values from 2^-21 to 511 fit
constexpr int TOP = 14;                    // the largest value has this exponent after a factor of its own
constexpr int MOST = 126;                  // exponent of a factor
constexpr int NO_POWER = 1000;             // means that no factor brings them into range
constexpr float LEAST = C * R * S + 8.0f;  // larger sums have all digits: values up to 2^16 lose 2^-36

// 2^e, for the exponents of normal numbers.
__device__ __forceinline__ float power_of_two(int e) { return __uint_as_float(unsigned(127 + e) << 23); }

// The largest magnitude of some values, where NaN is the largest, and the least one that is not zero.
struct Range {
  float largest = 0.0f;
  unsigned before_least = ~0u;  // twice its bits minus one, so that zero does not count as small

  __device__ __forceinline__ void add(float v) {
    largest = ptx::max_nan(largest, fabsf(v));
    before_least = min(before_least, __float_as_uint(v) * 2 - 1);
  }

  // Whether values times 2^e can be halves with all digits.
  __device__ __forceinline__ bool fits(int e) const {
    const float least = __uint_as_float(before_least / 2 + 1);
    return largest * power_of_two(e) < 65504.0f && (before_least == ~0u || least * power_of_two(e) >= 0x1p-14f);
  }

  // The exponent of the factor that the largest value needs.
  __device__ __forceinline__ int exponent() const {
    if (largest == 0.0f) return 0;
    return largest < __int_as_float(0x7f800000) ? min(TOP + 127 - (__float_as_int(largest) >> 23), MOST) : NO_POWER;
  }
};

// The range of the values of all threads of a block, collected in `shared`. It must be Range{} before, and the caller
// resets it when all threads have read it. All threads of the block must call this function.
__device__ __forceinline__ Range range_of_block(const Range& own, Range& shared) {
  atomicMax(reinterpret_cast<unsigned*>(&shared.largest), __float_as_uint(own.largest));  // in the order of floats
  atomicMin(&shared.before_least, own.before_least);
  __syncthreads();  // all threads have added their ranges
  return shared;
}

// What `prepare` computes about the weights.
struct OfWeights {
  int exponent;  // of their factor; NO_POWER: they are unchanged
  bool wide;     // some are too small for this factor
};

// The exponent of a band's factor. It is NO_POWER also if no single factor can undo it together with that of the
// weights.
__device__ __forceinline__ int beside(const Range& range, int of_weights) {
  const int e = range.exponent();
  return e == NO_POWER || of_weights == NO_POWER || abs(e + of_weights) > MOST ? NO_POWER : e;
}

// Multiplies values before they become halves, and stores their range.
struct Scale {
  float factor = power_of_two(USUAL);
  Range range;

  __device__ __forceinline__ void operator()(float (&v)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) range.add(v[i]), v[i] *= factor;
  }
};

// Undoes the factors of sums.
struct Undo {
  float factor;

  __device__ __forceinline__ void operator()(float (&sum)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; i++) sum[i] *= factor;
  }
};

// Runs before conv, in one block. It sets the counters to zero and multiplies the weights by their factor. After the
// scaled weights, it stores two numbers for conv: the exponent of this factor, and whether the range of the weights is
// too wide for it.
extern "C" __global__ void prepare(const float* w, float* scaled, unsigned* next, int tiles) {
  constexpr int COUNT = M * C * R * S;
  __shared__ Range shared;
  if (threadIdx.x == 0) shared = Range{};
  for (int i = threadIdx.x; i < tiles; i += blockDim.x) next[i] = 0;
  Range range;
  for (int i = threadIdx.x; i < COUNT; i += blockDim.x) range.add(w[i]);
  __syncthreads();  // shared is initialised
  range = range_of_block(range, shared);
  const int exponent = range.exponent();
  const float factor = exponent == NO_POWER ? 1.0f : power_of_two(exponent);
  for (int i = threadIdx.x; i < COUNT; i += blockDim.x) scaled[i] = w[i] * factor;
  if (threadIdx.x == 0)
    scaled[COUNT] = float(exponent), scaled[COUNT + 1] = exponent == NO_POWER || !range.fits(exponent);
}

// Computes sums of a unit again in fp32: those below `least` and those that are NaN, or all if `least` is NaN. A thread
// has a pixel of all channels. `x` is the unit's first row, `w` the scaled weights of its first channel, and `undo` the
// inverse of their factor.
__device__ __noinline__ void sum_plainly(const float* x, const float* w, float undo, float least, float* slab,
                                         int pitch, int rows, int channels, int H, int W) {
  const int Q = W - S + 1;
  for (int pixel = threadIdx.x; pixel < rows * Q; pixel += THREADS) {
    bool small = false, zero = least == least;
    for (int m = 0; m < channels; m++) small = small || !(fabsf(slab[m * pitch + pixel]) >= least);
    if (!small) continue;
    const float* const from = x + pixel / Q * W + pixel % Q;
    for (int c = 0; c < C && zero; c++)
#pragma unroll 1
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int s = 0; s < S; s++) zero = zero & (from[((long long)c * H + r) * W + s] == 0.0f);
    if (zero) continue;  // like much of an image's background: all of its sums are 0, which is right
    for (int m = 0; m < channels; m++) {
      if (fabsf(slab[m * pitch + pixel]) >= least) continue;
      const float* weight = w + m * C * R * S;
      float sum = 0.0f;
      for (int c = 0; c < C; c++)
#pragma unroll 1
        for (int r = 0; r < R; r++, weight += S)
#pragma unroll
          for (int s = 0; s < S; s++) sum = fmaf(from[((long long)c * H + r) * W + s], weight[s] * undo, sum);
      slab[m * pitch + pixel] = sum;
    }
  }
}
