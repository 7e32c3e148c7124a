// Sums of products as tensor cores compute them: see include/emulator/multiply.h.
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <array>

#include "one_sum.h"

namespace emulator {

namespace {

using namespace sums;

constexpr int MAX_M = 256, MAX_N = 32;

// Many sums at once, for numbers that are neither tiny nor huge.

#if defined __AVX512F__
constexpr int WIDTH = 16, BLOCK = 8;  // columns, and rows of this many columns, that are computed together
#elif defined __AVX2__
constexpr int WIDTH = 8, BLOCK = 4;
#else
constexpr int WIDTH = 4, BLOCK = 4;
#endif
constexpr int BIAS = 127, FRACTION_BITS = 23, EXPONENT = 255 << FRACTION_BITS;
// Exponents of operands, as floats have them. Their products, and the powers of two that align those, are exact floats.
// The exponents of a zero and another number add up to less than those of any product.
constexpr int SMALLEST = BIAS - 48, LARGEST = BIAS + 30, NO_PRODUCT = 2 * SMALLEST - 1;
static_assert(LARGEST <= NO_PRODUCT);

template <int width>
struct Vector {
  typedef float floats __attribute__((vector_size(4 * width)));
  typedef int ints __attribute__((vector_size(4 * width)));
  typedef uint32_t words __attribute__((vector_size(4 * width)));
  typedef uint16_t pairs __attribute__((vector_size(4 * width)));
};

template <class T>
T larger(const T& x, const T& y) {
  return x > y ? x : y;
}
template <class T>
T smaller(const T& x, const T& y) {
  return x < y ? x : y;
}
template <class T>
T load(const void* p) {
  T value;
  memcpy(&value, p, sizeof value);
  return value;
}
template <class T>
bool any(const T& mask) {
  uint64_t parts[sizeof mask / 8], all = 0;
  memcpy(parts, &mask, sizeof mask);
  for (const uint64_t part : parts) all |= part;
  return all;
}

// A word holds the exponents of elements l and l + k / 2, shifted accordingly; the latter in its upper half.
constexpr int SHIFT = FRACTION_BITS - 16;

// Reads exponents into words: `count` times `columns` elements at x, `step` apart, and those `far` behind them. Returns
// false if a number is tiny or huge.
template <int width, bool halves>
bool read_exponents(const float* x, int far, int step, int count, int columns, uint32_t* out) {
  using words = typename Vector<width>::words;
  using pairs = typename Vector<width>::pairs;
  constexpr uint16_t least = (BIAS + LEAST_OF_HALF) << SHIFT, low = (SMALLEST << SHIFT) - 1, high = LARGEST << SHIFT;
  pairs largest{}, smallest = ~pairs{};
  words subnormal{};
  for (int i = 0; i < count; i++)
    for (int j = 0; j < columns; j += width) {
      const float* const from = x + i * step + j;
      const words near_bits = load<words>(from), far_bits = load<words>(from + far);
      const words both = (near_bits & EXPONENT) >> 16 | (far_bits & EXPONENT);
      pairs exponents = (pairs)both;
      if constexpr (halves) {
        exponents = exponents != 0 ? larger(exponents, pairs{} + least) : exponents;
      } else {
        smallest = smaller(smallest, exponents - 1);  // for zero, this is the largest
        for (const words& bits : {near_bits, far_bits}) subnormal |= (words)((bits << 1) - 1 < 0xffffffu);
      }
      largest = larger(largest, exponents);
      memcpy(out + i * columns + j, &exponents, sizeof exponents);
    }
  return !any((largest > high) | (smallest < low)) && !any(subnormal);
}

template <int width, int k, Accumulators accumulators>
struct Panel {
  using floats = typename Vector<width>::floats;
  using ints = typename Vector<width>::ints;
  using words = typename Vector<width>::words;
  using pairs = typename Vector<width>::pairs;

  const float *a, *b;
  const uint32_t *a_exponents, *b_exponents;
  int n;  // floats from one row of b and d to the next

  // Adds the products of rows of a, from `first` on, to BLOCK rows of d. False: a sum needs care, and d is unchanged.
  bool add(float* d, int first) const {
    const uint32_t* const words_of_a = a_exponents + first * k / 2;
    if (!any(load<std::array<uint32_t, BLOCK * k / 2>>(words_of_a))) return add_zeros(d);
    ints product[BLOCK];
    words sum[BLOCK];
    floats scale[BLOCK];  // scales the last bit that counts to the value 1
    find_exponents(words_of_a, product);
#pragma GCC unroll 8
    for (int r = 0; r < BLOCK; r++) {
      const floats c = load<floats>(d + r * n);
      const ints largest = larger(product[r], exponent_of_sum(c));
      scale[r] = (floats)(ints)(((2u * BIAS + PLACES) << FRACTION_BITS) - (words)largest);
      const floats term = c * scale[r];
      sum[r] = (words) __builtin_convertvector(term, ints);
    }
    for (int l = 0; l < k; l++) {
      const floats row = load<floats>(b + l * n);
#pragma GCC unroll 8
      for (int r = 0; r < BLOCK; r++) {
        const floats term = row * a[(first + r) * k + l] * scale[r];
        sum[r] += (words) __builtin_convertvector(term, ints);
      }
    }

    floats result[BLOCK];
    words longest{};
    ints largest{};
#pragma GCC unroll 8
    for (int r = 0; r < BLOCK; r++) {
      const floats value = cut_off((ints)sum[r]) * (floats)((2 * BIAS << FRACTION_BITS) - (ints)scale[r]);
      const floats c = load<floats>(d + r * n);
      result[r] = product[r] == (NO_PRODUCT - BIAS) << FRACTION_BITS ? c + 0.0f : value;
      longest = larger(longest, length((ints)sum[r]));
      largest = larger(largest, (ints)c & EXPONENT);
    }
    // 16 products and c can add up to slightly more than the range of an int. c may be an infinity or NaN.
    if (any((ints)(longest >= (1u << 31) - (1u << 27)) | (largest == EXPONENT))) return false;
#pragma GCC unroll 8
    for (int r = 0; r < BLOCK; r++) memcpy(d + r * n, &result[r], sizeof result[r]);
    return true;
  }

 private:
  bool add_zeros(float* d) const {
    ints largest{};
    for (int r = 0; r < BLOCK; r++) largest = larger(largest, load<ints>(d + r * n) & EXPONENT);
    if (any(largest == EXPONENT)) return false;
    for (int r = 0; r < BLOCK; r++) {
      const floats sum = load<floats>(d + r * n) + 0.0f;
      memcpy(d + r * n, &sum, sizeof sum);
    }
    return true;
  }

  // The exponents of the largest products, in the place where floats have them.
  void find_exponents(const uint32_t* words_of_a, ints (&product)[BLOCK]) const {
    pairs exponents[BLOCK];
#pragma GCC unroll 8
    for (int r = 0; r < BLOCK; r++) exponents[r] = pairs{} + uint16_t(NO_PRODUCT << SHIFT);
    for (int l = 0; l < k / 2; l++) {
      const pairs row = load<pairs>(b_exponents + l * n);
#pragma GCC unroll 8
      for (int r = 0; r < BLOCK; r++)
        exponents[r] = larger(exponents[r], row + (pairs)(words{} + words_of_a[r * k / 2 + l]));
    }
#pragma GCC unroll 8
    for (int r = 0; r < BLOCK; r++) {
      const words both = (words)exponents[r];
      product[r] = (ints)((larger(both >> 16, both & 0xffff) << 16) - (uint32_t(BIAS) << FRACTION_BITS));
    }
  }

  static ints exponent_of_sum(floats c) {
    const ints exponent = (ints)c & EXPONENT;
    if constexpr (accumulators == Accumulators::floats) return exponent;
    return exponent == 0 ? exponent : larger(exponent, ints{} + ((BIAS + LEAST_OF_HALF) << FRACTION_BITS));
  }

  static words length(ints x) { return x < 0 ? -(words)x : (words)x; }

  static floats cut_off(ints sum) {
    const floats near = __builtin_convertvector(sum, floats);
    const ints back = __builtin_convertvector(near, ints);
    ints bits = (ints)near + (length(back) > length(sum));  // a true comparison is -1
    if constexpr (accumulators == Accumulators::halves) bits |= (back != sum) & 1;
    return (floats)bits;
  }
};

// `panel` has this many columns; `ordinary` is whether numbers are neither tiny nor huge.
template <int width, int k, Accumulators accumulators>
void add_panel(float* d, const Panel<width, k, accumulators>& panel, int m, Element element, bool ordinary) {
  for (int i = 0; i < m; i += BLOCK) {
    if (ordinary && panel.add(d + i * panel.n, i)) continue;
    for (int r = i; r < i + BLOCK; r++)
      for (int j = 0; j < width; j++) {
        float& sum = d[r * panel.n + j];
        sum = sum_of_any(panel.a + r * k, panel.b + j, panel.n, k, sum, element, accumulators);
      }
  }
}

template <int k, bool halves, Accumulators accumulators = Accumulators::floats>
void multiply_step(float* d, const float* a, const float* b, int m, int n, Element element) {
  constexpr int far = k / 2;
  alignas(64) uint32_t a_exponents[MAX_M * far], b_exponents[far * MAX_N];
  const bool ordinary = read_exponents<std::min(far, WIDTH), halves>(a, far, k, m, far, a_exponents) &
                        read_exponents<std::min(8, WIDTH), halves>(b, far * n, n, far, n, b_exponents);
  if (n % WIDTH)
    for (int j = 0; j < n; j += 8)
      add_panel(d + j, Panel<8, k, accumulators>{a, b + j, a_exponents, b_exponents + j, n}, m, element, ordinary);
  else
    for (int j = 0; j < n; j += WIDTH)
      add_panel(d + j, Panel<WIDTH, k, accumulators>{a, b + j, a_exponents, b_exponents + j, n}, m, element, ordinary);
}

}  // namespace

void multiply(float* d, const float* a, const float* b, int m, int n, int k, Element element,
              Accumulators accumulators) {
  const bool halves = element == Element::half;
  const auto step = accumulators == Accumulators::halves ? multiply_step<16, true, Accumulators::halves>
                    : k == 16                            ? (halves ? multiply_step<16, true> : multiply_step<16, false>)
                    : k == 8                             ? (halves ? multiply_step<8, true> : multiply_step<8, false>)
                                                         : multiply_step<4, false>;
  step(d, a, b, m, n, element);
}

}  // namespace emulator
