// Part of kernel.cu: stores, and the choice of sums that are computed again.

struct __align__(16) TwoLines {
  Line line[2];
};

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
