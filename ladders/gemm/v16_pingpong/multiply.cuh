// Part of kernel.cu: the products of a tile.

// Signals that this warp has read a stage.
__device__ __forceinline__ void release(Ring& ring, int index) {
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive((SHARE > 1 ? ring.read : ring.empty) + index);
}

// d[i] (64,ROWS) = 64 columns of b, transposed, times the rows of a, transposed. When all products have been requested,
// it is the other warpgroup's turn.
__device__ __forceinline__ void multiply(float (&d)[PAIRS][GROUPS][4], const char* memory, Ring& ring, Stage& stage,
                                         int steps, int player) {
  int before = 0;  // the stage of the previous step
#pragma unroll 1
  for (int step = 0; step < steps; step++, stage.next()) {
    const char* const a_tile = memory + stage.index * STAGE_BYTES;
    const auto left =
        ptx::matrix_descriptor_128b(a_tile + A_BYTES + player % TEAM * PAIRS * BOX_BYTES, BOX_BYTES, 1024);
    const auto right = ptx::matrix_descriptor_128b(a_tile, A_BYTES, 1024);
    constexpr int next_left = B_TURNED ? 32 : 2048, next_right = 32;  // bytes to the next 16 of k
    ptx::mbarrier_wait(ring.full_b + stage.index, stage.parity);
    ptx::mbarrier_wait(ring.full_a + stage.index, stage.parity);
    ptx::wgmma_fence();
#pragma unroll
    for (int j = 0; j < TILE_K / 16; j++)
#pragma unroll
      for (int i = 0; i < PAIRS; i++)
        ptx::wgmma_any_width<ROWS, Operand, !B_TURNED, false>(d[i], left + (i * BOX_BYTES >> 4) + j * (next_left >> 4),
                                                              right + j * (next_right >> 4), step > 0 || j > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();  // the previous step is complete: its stage may be filled again
    if (step > 0) release(ring, before);
    before = stage.index;
  }
  if (TURNS > 1 && threadIdx.x % 32 == 0) ptx::mbarrier_arrive(ring.turn + (player ^ 1));
#pragma unroll
  for (int i = 0; i < PAIRS; i++) ptx::wgmma_wait<0>(d[i]);
  release(ring, before);
}
