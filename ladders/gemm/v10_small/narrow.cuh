// Few tiles of aligned operands: 32 rows and 64 columns of c. A product of wgmma has 64 rows or more, and here these
// are columns of c: it multiplies b transposed by a transposed.
#pragma once
#include <mini_dnn/ptx_narrow.cuh>

#include "rows_out.cuh"

namespace narrow {

constexpr int A_BYTES = ROWS * TILE_K * 2, B_BYTES = COLUMNS * TILE_K * 2;  // of a stage
static_assert(ROWS == 32 && COLUMNS == 64 && TILE_K == 64 && THREADS == 160, "a warpgroup multiplies, a warp copies");

// `memory`: of the stages, then of the sums.
__device__ __forceinline__ void product(char* memory, const ptx::TensorMap& a, const ptx::TensorMap& b, const Out* c0,
                                        Out* c, int m, int n, int k, int c_pitch, float alpha, float beta) {
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES];
  const int across = (n + COLUMNS - 1) / COLUMNS, tiles = (m + ROWS - 1) / ROWS * across;  // in a row, in an entry
  const int entry = blockIdx.x / tiles, tile = blockIdx.x - entry * tiles;
  const int row0 = tile / across * ROWS, column0 = tile % across * COLUMNS;
  const int steps = (k + TILE_K - 1) / TILE_K, warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  float* const sums = reinterpret_cast<float*>(memory + STAGES * (A_BYTES + B_BYTES));
  if (threadIdx.x == 128) {
    ptx::tensor_prefetch(a);
    ptx::tensor_prefetch(b);
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 1);   // the thread that starts the copies
      ptx::mbarrier_init(empty + i, 4);  // every warp that multiplies
    }
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();
  }
  __syncthreads();  // the mbarriers are there
  ptx::grid_launch_dependents();

  Stage stage;
  if (threadIdx.x == 128) {
    ptx::grid_wait();
#pragma unroll 1
    for (int at = 0; at < k; at += TILE_K, stage.next()) {
      char *const to_a = memory + stage.index * (A_BYTES + B_BYTES), *const to_b = to_a + A_BYTES;
      ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(full + stage.index, A_BYTES + B_BYTES);
      ptx::tensor_load(to_b, b, B_TURNED ? at : column0, B_TURNED ? column0 : at, entry, full + stage.index);
      ptx::tensor_load(to_a, a, at, row0, entry, full + stage.index);
    }
  }
  if (warp < 4) {
    float d[ROWS / 8][4];
    int before = 0;  // the stage of the previous step
#pragma unroll 1
    for (int step = 0; step < steps; step++, stage.next()) {
      const char *const a_tile = memory + stage.index * (A_BYTES + B_BYTES), *const b_tile = a_tile + A_BYTES;
      const auto left = ptx::matrix_descriptor_128b(b_tile, B_BYTES, 1024);
      const auto right = ptx::matrix_descriptor_128b(a_tile, A_BYTES, 1024);
      constexpr int left_next = B_TURNED ? 32 : 2048, right_next = 32;  // bytes to the next 16 of k
      ptx::mbarrier_wait(full + stage.index, stage.parity);
      ptx::wgmma_fence();
#pragma unroll
      for (int j = 0; j < TILE_K / 16; j++)
        ptx::wgmma_m64n32k16<Operand, !B_TURNED>(d, left + j * (left_next >> 4), right + j * (right_next >> 4),
                                                 step > 0 || j > 0);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // the previous step is complete: its stage may be filled again
      if (step > 0 && lane == 0) ptx::mbarrier_arrive(empty + before);
      before = stage.index;
    }
    ptx::wgmma_wait<0>(d);
#pragma unroll
    for (int i = 0; i < ROWS / 8; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        sums[(8 * i + lane % 4 * 2 + j % 2) * rows_out::PITCH + warp * 16 + lane / 4 + j / 2 * 8] = d[i][j];
  }
  __syncthreads();  // all sums are there
  const long long of_entry = (long long)entry * m * c_pitch;
  if (warp < 4) rows_out::store(sums, {c0 + of_entry, c + of_entry, m, n, c_pitch, alpha, beta}, row0, column0, 0);
}

}  // namespace narrow
