// Sums of thousands of terms, and few tiles: PARTS blocks share the k of a tile. They store their sums as whole tiles
// of floats, and a second kernel adds them.
#pragma once
#include "add.cuh"
#include "tiles.cuh"

namespace parts {

constexpr int CONSUMERS = ROWS / 64, BOX_BYTES = 64 * TILE_K * 2;  // a box: 64 rows or columns
constexpr int A_BYTES = ROWS * TILE_K * 2, B_BYTES = COLUMNS * TILE_K * 2;
constexpr int GROUPS = COLUMNS / 8;  // of 8 columns
static_assert(TILE_K == 64 && THREADS == CONSUMERS * 128 + 32, "consumers, then a producer");

// One thread starts the copy engine.
struct TensorLoads {
  const ptx::TensorMap &a, &b;

  __device__ __forceinline__ void prefetch() const {
    ptx::tensor_prefetch(a);
    ptx::tensor_prefetch(b);
  }
  __device__ __forceinline__ void run(char* memory, ptx::mbarrier* full, ptx::mbarrier* empty, const Tiles& tiles,
                                      int count) const {
    Stage stage;
    int row, column, entry, first, last;
    if (threadIdx.x % 32 != 0) return;
    ptx::grid_wait();
    for (int i = blockIdx.x; i < count; i += gridDim.x) {
      tiles.find(i, row, column, entry);
      tiles.range(i, first, last);
#pragma unroll 1
      for (int at = first * TILE_K; at < last * TILE_K; at += TILE_K, stage.next()) {
        ptx::mbarrier* const ready = full + stage.index;
        char *const to_a = memory + stage.index * (A_BYTES + B_BYTES), *const to_b = to_a + A_BYTES;
        ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(ready, A_BYTES + B_BYTES);
#pragma unroll
        for (int j = 0; j < ROWS; j += 64)
          ptx::tensor_load(to_a + j / 64 * BOX_BYTES, a, A_TURNED ? row + j : at, A_TURNED ? at : row + j,
                           entry / PARTS, ready);
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 64)
          ptx::tensor_load(to_b + j / 64 * BOX_BYTES, b, B_TURNED ? at : column + j, B_TURNED ? column + j : at,
                           entry / PARTS, ready);
      }
    }
  }
};

template <class Loads>
__device__ __forceinline__ void product(char* memory, const Loads& loads, float* partial, int m, int n, int k,
                                        int batch) {
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES];
  const Tiles tiles{(m + ROWS - 1) / ROWS, (n + COLUMNS - 1) / COLUMNS, (k + TILE_K - 1) / TILE_K};
  const int count = tiles.rows * tiles.columns * batch * PARTS;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  if (threadIdx.x == CONSUMERS * 128) {
    loads.prefetch();
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 1);               // the thread that starts the copies
      ptx::mbarrier_init(empty + i, CONSUMERS * 4);  // every warp that multiplies
    }
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();
  }
  __syncthreads();
  ptx::grid_launch_dependents();

  if (warpgroup >= CONSUMERS) {
    loads.run(memory, full, empty, tiles, count);
    __syncwarp();  // its lanes meet before they exit
    return;
  }
  Stage stage;
  int row, column, entry, first, last;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  auto release = [&](int index) {
    if (lane == 0) ptx::mbarrier_arrive(empty + index);
  };
  for (int i = blockIdx.x; i < count; i += gridDim.x) {
    float d[GROUPS][4];
    int before = 0;  // the stage of the previous step
    tiles.range(i, first, last);
#pragma unroll 1
    for (int step = first; step < last; step++, stage.next()) {
      const char *const a_tile = memory + stage.index * (A_BYTES + B_BYTES), *const b_tile = a_tile + A_BYTES;
      const auto left = ptx::matrix_descriptor_128b(a_tile + warpgroup * BOX_BYTES, BOX_BYTES, 1024);
      const auto right = ptx::matrix_descriptor_128b(b_tile, BOX_BYTES, 1024);
      constexpr int a_next = A_TURNED ? 2048 : 32, b_next = B_TURNED ? 32 : 2048;  // bytes to the next 16 of k
      ptx::mbarrier_wait(full + stage.index, stage.parity);
      ptx::wgmma_fence();
#pragma unroll
      for (int j = 0; j < TILE_K / 16; j++)
        ptx::wgmma_m64k16<COLUMNS, Operand, A_TURNED, !B_TURNED>(d, left + j * (a_next >> 4), right + j * (b_next >> 4),
                                                                 step > first || j > 0);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // the previous step is complete: its stage may be filled again
      if (step > first) release(before);
      before = stage.index;
    }
    ptx::wgmma_wait<0>(d);
    release(before);
    tiles.find(i, row, column, entry);
    add::keep(d, partial, entry, tiles.rows * ROWS, tiles.columns * COLUMNS, row + warp_row, column);
  }
}

}  // namespace parts
