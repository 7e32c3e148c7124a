// Part of kernel.cu: how sums of the transpose of c get to shared memory.

// Stores sums to shared memory as rows of 64 elements of c, with 128-byte swizzle: 8 `count` rows from d[first] on.
template <int count, int groups>
__device__ __forceinline__ void stage_rows(const float (&d)[groups][4], int first, float alpha, char* rows) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int i = 0; i < count; i += 2) {  // four matrices: twice 8 columns of 8 rows, and of the next 8 rows
    const float *const x = d[first + i], *const y = d[first + i + 1];
    const unsigned four[4] = {sums::pack<Out>(alpha * x[0], alpha * x[1]), sums::pack<Out>(alpha * x[2], alpha * x[3]),
                              sums::pack<Out>(alpha * y[0], alpha * y[1]), sums::pack<Out>(alpha * y[2], alpha * y[3])};
    const int row = 8 * (i + lane / 16) + lane % 8, part = warp * 2 + lane / 8 % 2;
    ptx::stmatrix_trans(rows + row * 128 + (part ^ row % 8) * 16, four);
  }
  ptx::fence_proxy_async();
}
