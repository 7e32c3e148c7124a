// Part of kernel.cu: what the warpgroup computes of a tile of c.

// d (64,ROWS) = or with `add` += 64 columns of a stage of b, transposed, times a stage of a, transposed.
template <int groups>
__device__ __forceinline__ void multiply_stage(float (&d)[groups][4], const char* stage, int warpgroup, bool add) {
  const auto left = ptx::matrix_descriptor_128b(stage + A_BYTES + warpgroup * BOX_BYTES, BOX_BYTES, 1024);
  const auto right = ptx::matrix_descriptor_128b(stage, A_BYTES, 1024);
  constexpr int next_left = B_TURNED ? 32 : 2048, next_right = 32;  // bytes to the next 16 of k
#pragma unroll
  for (int j = 0; j < TILE_K / 16; j++) {
    const auto left_16 = left + j * (next_left >> 4), right_16 = right + j * (next_right >> 4);
    ptx::wgmma_any_width<ROWS, Operand, !B_TURNED, false>(d, left_16, right_16, add || j > 0);
  }
}

// The sums of a tile.
template <int groups>
__device__ __forceinline__ void multiply(float (&d)[groups][4], const char* stages, Ring& ring, int steps,
                                         int warpgroup) {
  Stage stage;
  int before = 0;  // the stage of the previous step
#pragma unroll 1
  for (int step = 0; step < steps; step++, stage.next()) {
    ptx::mbarrier_wait(ring.full_b + stage.index, stage.parity);
    ptx::mbarrier_wait(ring.full_a + stage.index, stage.parity);
    ptx::wgmma_fence();
    multiply_stage(d, stages + stage.index * STAGE_BYTES, warpgroup, step > 0);
    ptx::wgmma_commit();
    if constexpr (!WHOLE) {  // else no stage is used again
      ptx::wgmma_wait<1>();  // the previous step is complete
      if (step > 0 && threadIdx.x % 32 == 0) ptx::mbarrier_arrive(ring.empty + before);
      before = stage.index;
    }
  }
  ptx::wgmma_wait<0>(d);
}

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
