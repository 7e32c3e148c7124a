// With SPLIT: powers of two that bring values into the range of halves, and fp32 arithmetic where none can.
//
// A value keeps its digits as two halves from 2^-14 up to 65,504. Weights have one factor, and a band of the image has
// one, nearly always the USUAL one: as it is packed, each thread looks at its values, and the barrier that follows asks
// whether they all fit. If not, the band is packed again with a factor of its own. Values too far apart for any factor,
// infinities and NaN are left to plain sums.
#pragma once

constexpr int USUAL = 7;        // times 2^7: what lies from 2^-21 to 511 fits
constexpr int TOP = 14;         // the largest value of a band with a factor of its own has this exponent
constexpr int MOST = 126;       // exponent of a factor
constexpr int NO_POWER = 1000;  // stands for: no factor brings them into range

// 2^e, for the exponents of normal numbers.
__device__ __forceinline__ float power_of_two(int e) { return __int_as_float((127 + e) << 23); }

// The largest of some values and the least that is not zero, as bits and without their signs. NaN is the largest.
struct Range {
  unsigned largest = 0, before_least = ~0u;  // the latter less one, so that zero is no small value

  __device__ __forceinline__ void add(float v) {
    const unsigned bits = __float_as_uint(v) & 0x7fffffffu;
    largest = max(largest, bits), before_least = min(before_least, bits - 1);
  }

  // Whether values times 2^e are halves with all digits.
  __device__ __forceinline__ bool fits(int e) const {
    const float factor = power_of_two(e), least = power_of_two(-14);
    return largest < 0x7f800000u && __uint_as_float(largest) * factor < 65504.0f &&
           (before_least == ~0u || __uint_as_float(before_least + 1) * factor >= least);
  }

  // The exponent of the factor for them.
  __device__ __forceinline__ int exponent() const {
    if (largest >= 0x7f800000u) return NO_POWER;
    const int e = min(TOP + 127 - int(largest >> 23), MOST);
    return fits(e) ? e : NO_POWER;
  }
};

// The range of the values of all threads of a block, gathered in `shared`, which has to be Range{} before: the caller
// sets it so again once all have read it. All threads meet here.
__device__ __forceinline__ Range range_of_block(const Range& own, Range& shared) {
  atomicMax(&shared.largest, own.largest);
  atomicMin(&shared.before_least, own.before_least);
  __syncthreads();  // all have added theirs
  return shared;
}

// The exponent for a band's range, with that of the weights: NO_POWER also where no one factor undoes both.
__device__ __forceinline__ int beside(const Range& range, int of_weights) {
  const int e = range.exponent();
  return e == NO_POWER || of_weights == NO_POWER || abs(e + of_weights) > MOST ? NO_POWER : e;
}

// Multiplies values on their way to halves, and remembers their range.
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

// Before conv, one block: counters to zero, and weights times their factor. Behind the weights goes its exponent; where
// that is NO_POWER, they are as they were.
extern "C" __global__ void prepare(const float* w, float* scaled, unsigned* next, int tiles) {
  constexpr int COUNT = M * C * R * S;
  __shared__ Range shared;
  if (threadIdx.x == 0) shared = Range{};
  for (int i = threadIdx.x; i < tiles; i += blockDim.x) next[i] = 0;
  Range range;
  for (int i = threadIdx.x; i < COUNT; i += blockDim.x) range.add(w[i]);
  __syncthreads();  // shared is there
  const int exponent = range_of_block(range, shared).exponent();
  const float factor = exponent == NO_POWER ? 1.0f : power_of_two(exponent);
  for (int i = threadIdx.x; i < COUNT; i += blockDim.x) scaled[i] = w[i] * factor;
  if (threadIdx.x == 0) scaled[COUNT] = float(exponent);
}

// The sums of a unit in fp32 arithmetic, to the slab: the way of infinities, NaN and values far apart. `x`: its first
// row; `w`: of its first channel, as `prepare` left them; `undo`: their factor's inverse.
__device__ __noinline__ void sum_plainly(const float* x, const float* w, float undo, float* slab, int pitch, int rows,
                                         int channels, int H, int W) {
  const int Q = W - S + 1, count = rows * Q;
  for (int i = threadIdx.x; i < channels * count; i += THREADS) {
    const int m = i / count, pixel = i % count;
    const float* const from = x + pixel / Q * W + pixel % Q;
    float sum = 0.0f;
    for (int c = 0; c < C; c++)
      for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++)
          sum = fmaf(from[((long long)c * H + r) * W + s], w[((m * C + c) * R + r) * S + s] * undo, sum);
    slab[m * pitch + pixel] = sum;
  }
}
