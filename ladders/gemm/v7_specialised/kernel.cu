// gemm/v7_specialised: gemm/v6_wgmma with one copying warp, multiplying warpgroups, and persistent blocks.
//
// Idea      In gemm/v6_wgmma, all threads meet after every stage. Here one warp, the producer, requests stages while
//           there is room, and two warpgroups, the consumers, multiply while there are tiles. They meet only at
//           mbarriers: `full` signals that a stage has arrived, `empty` that it has been read. A block processes tile
//           after tile, and the ring of stages continues across tiles: while sums are stored, the next tile is copied.
//           Tiles are processed in bands, so that simultaneous blocks share rows of a and columns of b in L2.
// Layout    as gemm/v6_wgmma, with tiles of 128 x 256 and four stages of 48 KB. Sums of 16 bits pass through shared
//           memory, 4 KB per warp, and are stored by tensor copies.
// Mapping   a block on each multiprocessor; warpgroups 0 and 1 consume, 64 x 256 each, 128 sums per thread; warp 8
//           produces. Tile i -> block i % blocks.
// Roofline  m = n = k = 4096: 137 GFLOP, 0.14 ms at 990 TFLOP/s, in practice 0.175 because power lowers the clock. L2
//           has to deliver 48 KB for 128 x 256 x 64 products, which take 1,024 clocks. These are 48 bytes per clock,
//           and about 64 are possible.
// Gain      over gemm/v6_wgmma: a factor of 1.3, to 0.19 ms. Larger tiles need a quarter less from L2, and there is no
//           barrier for all threads.
// Limits    as gemm/v6_wgmma.
// Hazards   The producer waits for `empty` with the parity of the previous phase, so that its waits in the first round
//           end immediately. A stage is released after the wait for its products, because the tensor cores read it
//           until then. Warps arrive one by one, because each waits for its own products. The producer performs exactly
//           the same steps as the consumers, so no stage stays half full.
// Source    PTX ISA, "mbarrier", "cp.async.bulk.tensor", "wgmma.mma_async", "stmatrix".
#include <mini_dnn/sums.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

constexpr int CONSUMERS = ROWS / 64, BOX_BYTES = 64 * TILE_K * 2;  // a box: 64 rows or columns
constexpr int A_BYTES = ROWS * TILE_K * 2, B_BYTES = COLUMNS * TILE_K * 2, STAGED_BYTES = 4096;  // of a warp
static_assert(TILE_K == 64 && THREADS == CONSUMERS * 128 + 32, "consumers, then the producer's warp");

struct Stage {  // a stage of the ring, and the parity of its phase
  int index = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++index == STAGES) index = 0, parity ^= 1;
  }
};

struct Tiles {
  int rows, columns;  // of tiles, in an entry of the batch
  // BAND rows of tiles are one band; in it, tiles follow each other column by column.
  __device__ __forceinline__ void find(int i, int& row, int& column, int& entry) const {
    entry = i / (rows * columns);
    i -= entry * rows * columns;
    const int first = i / (BAND * columns) * BAND, height = min(BAND, rows - first), in_band = i - first * columns;
    row = (first + in_band % height) * ROWS;
    column = in_band / height * COLUMNS;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ ptx::TensorMap a, const __grid_constant__ ptx::TensorMap b,
         const __grid_constant__ ptx::TensorMap c_map, const Out* c0, Out* c, int m, int n, int k, int c_pitch,
         int batch, float alpha, float beta) {
  extern __shared__ __align__(1024) char memory[];  // stages of a tile of a and one of b; results of warps
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES];
  const Tiles tiles{(m + ROWS - 1) / ROWS, (n + COLUMNS - 1) / COLUMNS};
  const int count = tiles.rows * tiles.columns * batch, steps = (k + TILE_K - 1) / TILE_K;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, CONSUMERS * 4);  // every warp that multiplies
    }
    ptx::fence_proxy_async();
  }
  __syncthreads();

  Stage stage;
  int row, column, entry;
  if (warpgroup == CONSUMERS) {
    if (threadIdx.x % 32 != 0) return;
    ptx::tensor_prefetch(a);
    ptx::tensor_prefetch(b);
    for (int i = blockIdx.x; i < count; i += gridDim.x) {
      tiles.find(i, row, column, entry);
#pragma unroll 1
      for (int at = 0; at < steps * TILE_K; at += TILE_K, stage.next()) {
        ptx::mbarrier* const ready = full + stage.index;
        char *const to_a = memory + stage.index * (A_BYTES + B_BYTES), *const to_b = to_a + A_BYTES;
        ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(ready, A_BYTES + B_BYTES);
        for (int i = 0; i < ROWS; i += 64)
          ptx::tensor_load(to_a + i / 64 * BOX_BYTES, a, A_TURNED ? row + i : at, A_TURNED ? at : row + i, entry,
                           ready);
        for (int i = 0; i < COLUMNS; i += 64)
          ptx::tensor_load(to_b + i / 64 * BOX_BYTES, b, B_TURNED ? at : column + i, B_TURNED ? column + i : at, entry,
                           ready);
      }
    }
    return;
  }

  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  char* const staged = memory + STAGES * (A_BYTES + B_BYTES) + threadIdx.x / 32 * STAGED_BYTES;
  for (int i = blockIdx.x; i < count; i += gridDim.x) {
    float d[COLUMNS / 8][4];
    int before = 0;  // the stage of the previous step
#pragma unroll 1
    for (int step = 0; step < steps; step++, stage.next()) {
      const char *const a_tile = memory + stage.index * (A_BYTES + B_BYTES), *const b_tile = a_tile + A_BYTES;
      const auto left = ptx::matrix_descriptor_128b(a_tile + warpgroup * BOX_BYTES, BOX_BYTES, 1024);
      const auto right = ptx::matrix_descriptor_128b(b_tile, BOX_BYTES, 1024);
      constexpr int a_next = A_TURNED ? 2048 : 32, b_next = B_TURNED ? 32 : 2048;  // bytes to the next 16 of k
      ptx::mbarrier_wait(full + stage.index, stage.parity);
      ptx::wgmma_fence();
#pragma unroll
      for (int j = 0; j < TILE_K / 16; j++)
        ptx::wgmma_m64k16<COLUMNS, Operand, A_TURNED, !B_TURNED>(d, left + j * (a_next >> 4), right + j * (b_next >> 4),
                                                                 step > 0 || j > 0);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // the previous step is complete: its stage may be filled again
      if (step > 0 && lane == 0) ptx::mbarrier_arrive(empty + before);
      before = stage.index;
    }
    ptx::wgmma_wait<0>(d);
    if (lane == 0) ptx::mbarrier_arrive(empty + before);

    tiles.find(i, row, column, entry);
    if constexpr (BY_TENSOR) {
      sums::store_tensor<Out>(d, c_map, alpha, staged, row + warp_row, column, entry);
    } else {
      const long long of_entry = (long long)entry * m * c_pitch;
      const sums::Matrix<Out> to{c0 + of_entry, c + of_entry, m, n, c_pitch, alpha, beta};
      sums::store<C_PAIRS>(d, to, row + warp_row, column);
    }
  }
  if (BY_TENSOR && lane == 0) ptx::bulk_wait_read<0>();  // memory of a block must outlive its copies
}
