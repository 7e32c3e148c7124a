// Part of kernel.cu: stores, and sums that are computed again.

struct Operands {
  const float *a, *b;
  int m, n, k, a_pitch, b_pitch;
};

// For the lines of an entry of the batch: the inverses of their factors, and their kinds (range.cuh).
struct Lines {
  const float* factors;
  const int* kinds;
};

// An element of c. In double, as products and partial sums may be beyond fp32. A warp for each element would be faster,
// but ptxas makes the loop of products slower if lanes exchange values after it.
__device__ __noinline__ float plain(const Operands& x, int entry, int row, int column) {
  const float* const a = x.a + (long long)entry * (A_LINES ? x.k : x.m) * x.a_pitch;
  const float* const b = x.b + (long long)entry * (B_LINES ? x.k : x.n) * x.b_pitch;
  double sum = 0.0;
#pragma unroll 16
  for (int i = 0; i < x.k; i++) {
    const float of_a = A_LINES ? a[(long long)i * x.a_pitch + row] : a[(long long)row * x.a_pitch + i];
    const float of_b = B_LINES ? b[(long long)i * x.b_pitch + column] : b[(long long)column * x.b_pitch + i];
    sum += double(of_a) * of_b;
  }
  return float(sum);
}

// Undoes the factors, stores, and then computes again the sums that halves cannot represent.
template <int groups>
__device__ __forceinline__ void finish(float (&total)[groups][4], const Operands& x, const Lines& of_a,
                                       const Lines& of_b, const sums::Matrix<float>& to, int entry, int row,
                                       int column) {
  const int lane = threadIdx.x % 32, first_row = row + lane / 4, first_column = column + lane % 4 * 2;
  const float of_rows[2] = {of_a.factors[first_row], of_a.factors[first_row + 8]};
  bool small = false, infinite = false;
#pragma unroll
  for (int i = 0; i < groups; i++) {  // lines beyond a and b have factors, too
    const float2 of_columns = *reinterpret_cast<const float2*>(of_b.factors + first_column + 8 * i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      small |= fabsf(total[i][j]) < LEAST_SUM;
      total[i][j] *= of_rows[j / 2];
      total[i][j] *= j % 2 ? of_columns.y : of_columns.x;
      infinite |= !isfinite(total[i][j]);
    }
  }
  sums::store<C_PAIRS>(total, to, row, column);
  if (!small && !infinite) return;
  const int kinds[2] = {of_a.kinds[first_row], of_a.kinds[first_row + 8]};
  if (!infinite && (kinds[0] | kinds[1]) == 0) return;

  unsigned again[groups / 8] = {};  // a bit for each sum
#pragma unroll
  for (int i = 0; i < groups * 4; i++) {
    const int c = first_column + i / 4 * 8 + i % 2, kind = kinds[i % 4 / 2], other = of_b.kinds[c];
    const bool doubtful = kind != 0 && other != 0 && ((kind | other) & UNEVEN);
    const float magnitude = fabsf(total[i / 4][i % 4]);
    if ((doubtful && magnitude <= LEAST_SUM * of_rows[i % 4 / 2] * of_b.factors[c]) || !isfinite(magnitude))
      again[i / 32] |= 1u << i % 32;
  }
#pragma unroll
  for (int word = 0; word < groups / 8; word++) {
#pragma unroll 1
    for (unsigned bits = again[word]; bits != 0; bits &= bits - 1) {
      const int i = word * 32 + __ffs(bits) - 1, r = first_row + i % 4 / 2 * 8, c = first_column + i / 4 * 8 + i % 2;
      if (r >= x.m || c >= x.n) continue;
      const long long at = (long long)r * to.pitch + c;
      const float sum = to.alpha * plain(x, entry, r, c);
      to.c[at] = to.beta == 0.0f ? sum : sum + to.beta * to.c0[at];
    }
  }
}
