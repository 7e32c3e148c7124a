// With SPLIT: powers of two that bring values into the range of halves, and fp32 arithmetic for all other values.
//
// A value keeps its digits as two halves from 2^-14 up to 65,504. Weights have one factor, and a band of the image has
// one, nearly always the USUAL one: as it is packed, each thread looks at its values, and the barrier that follows asks
// whether they all fit. If not, the band is packed again, with the factor that its largest value needs. Where values
// are too small for that, sums are off by a part of LEAST, which matters for small ones: these are made again, in plain
// fp32. So are all sums of a band, or of weights, with an infinity or NaN.
#pragma once

constexpr int USUAL = 7;                   // times 2^7: values from 2^-21 to 511 fit
constexpr int TOP = 14;                    // the largest value has this exponent after a factor of its own
constexpr int MOST = 126;                  // exponent of a factor
constexpr int NO_POWER = 1000;             // means that no factor brings them into range
constexpr float LEAST = C * R * S + 8.0f;  // from here on a sum has its digits: values lose 2^-36 of others up to 2^16

// 2^e, for the exponents of normal numbers.
__device__ __forceinline__ float power_of_two(int e) { return __uint_as_float(unsigned(127 + e) << 23); }

// The largest of some values without their signs, NaN above all, and the least that is not zero.
struct Range {
  float largest = 0.0f;
  unsigned before_least = ~0u;  // twice its bits less one, so that zero is no small value

  __device__ __forceinline__ void add(float v) {
    largest = ptx::max_nan(largest, fabsf(v));
    before_least = min(before_least, __float_as_uint(v) * 2 - 1);
  }

  // Whether values times 2^e are halves with all digits.
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

// The range of the values of all threads of a block, gathered in `shared`, which has to be Range{} before: the caller
// sets it so again once all have read it. All threads meet here.
__device__ __forceinline__ Range range_of_block(const Range& own, Range& shared) {
  atomicMax(reinterpret_cast<unsigned*>(&shared.largest), __float_as_uint(own.largest));  // in the order of floats
  atomicMin(&shared.before_least, own.before_least);
  __syncthreads();  // all have added theirs
  return shared;
}

// What `prepare` finds out about the weights.
struct OfWeights {
  int exponent;  // of their factor; NO_POWER: they are as they were
  bool wide;     // some are too small for it
};

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

// Before conv, one block: counters to zero, and weights times their factor. Their exponent, and whether they
// are wide, are stored after the weights, for conv.
extern "C" __global__ void prepare(const float* w, float* scaled, unsigned* next, int tiles) {
  constexpr int COUNT = M * C * R * S;
  __shared__ Range shared;
  if (threadIdx.x == 0) shared = Range{};
  for (int i = threadIdx.x; i < tiles; i += blockDim.x) next[i] = 0;
  Range range;
  for (int i = threadIdx.x; i < COUNT; i += blockDim.x) range.add(w[i]);
  __syncthreads();  // shared is there
  range = range_of_block(range, shared);
  const int exponent = range.exponent();
  const float factor = exponent == NO_POWER ? 1.0f : power_of_two(exponent);
  for (int i = threadIdx.x; i < COUNT; i += blockDim.x) scaled[i] = w[i] * factor;
  if (threadIdx.x == 0)
    scaled[COUNT] = float(exponent), scaled[COUNT + 1] = exponent == NO_POWER || !range.fits(exponent);
}

// Makes those sums of a unit again, in fp32 arithmetic, that are below `least` or not a number; all if that is NaN. A
// thread has a pixel of all channels. `x`: the unit's first row; `w`: of its first channel, as `prepare` left them;
// `undo`: their factor's inverse.
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
    if (zero) continue;  // as much of the background of an image is: all of its sums are 0, and right
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
