// Part of kernel.cu: a wide tile of c, of which two warpgroups compute 64 rows each.
#include "half.cuh"

constexpr int TAIL = COLUMNS == 256 ? 3 : 0;  // steps, the last ones, that multiply half of the columns at a time
constexpr int PART_BYTES = 16 * 64 * 2;       // 16 rows and 64 columns of c
constexpr int WARP_BYTES = (TAIL > 0 ? COLUMNS / 2 : COLUMNS) / 64 * PART_BYTES;  // of sums that are stored together

// Stores 16 rows of a warp, 64 columns at a time, through memory of its own, which copies may still read after the
// call.
template <int groups>
__device__ __forceinline__ void store_part(const float (&d)[groups][4], const ptx::TensorMap& c, float alpha, char* own,
                                           int row, int column, int entry) {
#pragma unroll
  for (int i = 0; i < groups / 8; i++) {
    sums::stage<Out>(d, 8 * i, alpha, own + i * PART_BYTES);
    ptx::fence_proxy_async();
    __syncwarp();
    if (ptx::elect()) {
      ptx::tensor_store(c, column + 64 * i, row, entry, own + i * PART_BYTES);
      ptx::bulk_commit();
    }
  }
}

// d (64,8 groups) = 64 rows of a times the columns of b from `from` on, from a stage; or += with `add`.
template <int groups>
__device__ __forceinline__ void multiply_columns(float (&d)[groups][4], const char* stage, int warpgroup, int from,
                                                 bool add) {
  const auto left = ptx::matrix_descriptor_128b(stage + warpgroup * BOX_BYTES, BOX_BYTES, 1024);
  const auto right = ptx::matrix_descriptor_128b(stage + A_BYTES + from / 64 * BOX_BYTES, BOX_BYTES, 1024);
  constexpr int next_left = 32, next_right = B_TURNED ? 32 : 2048;  // bytes to the next 16 of k
#pragma unroll
  for (int j = 0; j < TILE_K / 16; j++)
    ptx::wgmma_m64k16<groups * 8, Operand, false, !B_TURNED>(d, left + j * (next_left >> 4),
                                                             right + j * (next_right >> 4), add || j > 0);
}

// The sums of a tile. There are more steps than TAIL. The last ones multiply the first half of the columns, and then
// the other one, so that the first half is stored while the other one is multiplied. Warpgroup 1 starts them when
// warpgroup 0 has nearly finished, so that at most a quarter of c is left to be stored after the last product.
// `before` becomes the stage of the last step of the loop. The last products are still in flight when this returns.
// ptxas 13.0 may find too few registers for the halves. It then waits for each product (message C7511). To avoid this,
// the loop runs at least once, and the places of the last stages are computed from the stage before them. Small changes
// elsewhere may bring the message back. For 192 columns, this was not enough.
template <int groups>
__device__ __forceinline__ void multiply_wide(float (&d)[groups][4], const char* stages, Ring& ring, int steps,
                                              int warpgroup, Stage& stage, int& before) {
  int step = 0;
  auto wait_full = [&] {
    ptx::mbarrier_wait(ring.full_b + stage.index, stage.parity);
    ptx::mbarrier_wait(ring.full_a + stage.index, stage.parity);
  };
#pragma unroll 1
  do {
    wait_full();
    ptx::wgmma_fence();
    multiply_columns(d, stages + stage.index * STAGE_BYTES, warpgroup, 0, step > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();  // the previous step is complete
    if (step > 0 && ptx::elect()) ptx::mbarrier_arrive(ring.empty + before);
    before = stage.index;
    stage.next();
  } while (++step < steps - TAIL);

  if constexpr (TAIL > 0) {
    const int first = stage.index;
    auto stage_of = [&](int i) { return stages + (first + i) % STAGES * STAGE_BYTES; };
    if (warpgroup == 1) {
      ptx::wgmma_wait<0>();
      if (ptx::elect()) ptx::mbarrier_arrive(ring.empty + before);
      ptx::mbarrier_wait(&ring.turn, 0);
    }
    for (int i = 0; i < TAIL - 1; i++, stage.next()) wait_full();
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < TAIL; i++) {
      if (i == TAIL - 1) wait_full(), stage.next();  // not before: it was requested last
      multiply_columns(half_of<0>(d), stage_of(i), warpgroup, 0, true);
    }
    ptx::wgmma_commit();
#pragma unroll
    for (int i = 0; i < TAIL; i++) {
      multiply_columns(half_of<1>(d), stage_of(i), warpgroup, COLUMNS / 2, true);
      if (i == TAIL - 2) ptx::wgmma_commit();
    }
    ptx::wgmma_commit();
  }
}

// Waits for the sums, or for each half of them, and stores them. The second half goes out through `spare`, the stage
// that would be filled next, so that it does not have to wait until the copies of the first half have read their
// memory. It is the stage of the last step of the loop, `before`. The function takes both, because ptxas waits for each
// product (C7511) if the arrival uses the index of `spare`.
template <int groups>
__device__ __forceinline__ void store_wide(float (&d)[groups][4], const ptx::TensorMap& c, float alpha, char* stages,
                                           Ring& ring, const Stage& spare, int before, int row, int column, int entry) {
  const int warp = threadIdx.x / 32;
  char* const own = stages + STAGES * STAGE_BYTES + warp * WARP_BYTES;
  row += warp * 16;
  if constexpr (TAIL > 0) {
    ptx::wgmma_wait<2>(half_of<0>(d));
    if (warp < 4 && ptx::elect()) ptx::mbarrier_arrive(ring.empty + before);
    store_part(half_of<0>(d), c, alpha, own, row, column, entry);
    ptx::mbarrier_wait(ring.empty + spare.index, spare.parity ^ 1);  // all warps have read it
    ptx::wgmma_wait<1>();
    if (warp < 4 && ptx::elect()) ptx::mbarrier_arrive(&ring.turn);
    ptx::wgmma_wait<0>(half_of<1>(d));
    store_part(half_of<1>(d), c, alpha, stages + spare.index * STAGE_BYTES + warp * WARP_BYTES, row,
               column + COLUMNS / 2, entry);
  } else {
    ptx::wgmma_wait<0>(d);
    store_part(d, c, alpha, own, row, column, entry);
  }
  if (ptx::elect()) ptx::bulk_wait_read<0>();  // before the block exits and its memory is reused
}
