// Part of kernel.cu: sums that are computed again.

struct Operands {
  const float *a, *b;
  int m, n, k, a_pitch, b_pitch;
};

// The sum of an element of c, without alpha and beta. It is computed in double, because products and partial sums may
// be beyond fp32. A_LINES and B_LINES say that rows of a, and columns of b, are adjacent in memory. A warp for each
// element would be faster, but ptxas makes the kernel's loop of products slower if lanes exchange values after it.
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
