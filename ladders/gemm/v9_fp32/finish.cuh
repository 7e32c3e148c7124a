// Part of kernel.cu: stores, and sums that are computed again.

struct Operands {
  const float *a, *b;
  int m, n, k, a_pitch, b_pitch;
};

struct __align__(16) TwoLines {
  Line line[2];
};

// An element of c, in double, because products and partial sums may be beyond fp32. A warp for each element would be
// faster, but ptxas makes the loop of products slower if lanes exchange values after it.
__device__ __noinline__ float plain(const Operands& x, int entry, int row, int column) {
  const float* const a = x.a + (long long)entry * (A_LINES ? x.k : x.m) * x.a_pitch;
  const float* const b = x.b + (long long)entry * (B_LINES ? x.k : x.n) * x.b_pitch;
  auto product = [&](int i) {
    const float of_a = A_LINES ? a[(long long)i * x.a_pitch + row] : a[(long long)row * x.a_pitch + i];
    const float of_b = B_LINES ? b[(long long)i * x.b_pitch + column] : b[(long long)column * x.b_pitch + i];
    return double(of_a) * of_b;
  };
  double sums[4] = {};  // four chains, as an addition takes long
  int i = 0;
#pragma unroll 1
  for (; i + 16 <= x.k; i += 16)
#pragma unroll
    for (int j = 0; j < 16; j++) sums[j % 4] += product(i + j);
  for (; i < x.k; i++) sums[0] += product(i);
  return float((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Whether a sum is below `least`, so that halves may have lost too much of it, or not finite.
__device__ __forceinline__ bool is_small(float sum, float least) { return !(fabsf(sum) >= least) || isinf(sum); }

// Undoes the factors, stores, and then computes again the sums that halves cannot represent.
template <int groups>
__device__ __forceinline__ void finish(float (&total)[groups][4], const Operands& x, const Line* of_a, const Line* of_b,
                                       const sums::Matrix<float>& to, int entry, int row, int column) {
  const int lane = threadIdx.x % 32, first_row = row + lane / 4, first_column = column + lane % 4 * 2;
  const Line rows[2] = {of_a[first_row], of_a[first_row + 8]};
  unsigned doubt = 0;  // the largest doubt of a column
#pragma unroll
  for (int i = 0; i < groups; i++) {  // lines beyond a and b have factors, too
    const TwoLines columns = *reinterpret_cast<const TwoLines*>(of_b + first_column + 8 * i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      total[i][j] *= rows[j / 2].inverse;
      total[i][j] *= columns.line[j % 2].inverse;
    }
    doubt = max(doubt, max(columns.line[0].doubt, columns.line[1].doubt));
  }
  sums::store<C_PAIRS>(total, to, row, column);
  const unsigned doubtful = doubtful_from(x.k);
  if (doubt + max(rows[0].doubt, rows[1].doubt) < doubtful) return;

  const float least[2] = {LEAST_SUM * rows[0].inverse, LEAST_SUM * rows[1].inverse};
  unsigned small[groups / 8] = {};  // a bit for each sum
#pragma unroll
  for (int i = 0; i < groups; i++) {
    const TwoLines columns = *reinterpret_cast<const TwoLines*>(of_b + first_column + 8 * i);
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (is_small(total[i][j], least[j / 2] * columns.line[j % 2].inverse)) small[i / 8] |= 1u << (i % 8 * 4 + j);
  }
#pragma unroll
  for (int word = 0; word < groups / 8; word++) {
#pragma unroll 1
    for (unsigned bits = small[word]; bits != 0; bits &= bits - 1) {
      const int i = word * 32 + __ffs(bits) - 1, r = first_row + i % 4 / 2 * 8, c = first_column + i / 4 * 8 + i % 2;
      if (r >= x.m || c >= x.n) continue;
      const unsigned of_row = of_a[r].doubt, of_column = of_b[c].doubt;
      const long long at = (long long)r * to.pitch + c;
      // Small sums of two lines that are not uneven are accurate, because each of their terms is.
      if (of_row + of_column < doubtful || (((of_row | of_column) & 1) == 0 && isfinite(to.c[at]))) continue;
      const float sum = to.alpha * plain(x, entry, r, c);
      to.c[at] = to.beta == 0.0f ? sum : sum + to.beta * to.c0[at];
    }
  }
}
