// Part of kernel.cu: the sums of a warpgroup.
#include "stage_rows.cuh"

// d (64,ROWS) = 64 columns of b, transposed, times ROWS rows of a, transposed, from a stage; or += with `add`.
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
