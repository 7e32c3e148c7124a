// gemm/v19_fma: small products in fp32, with FMAs instead of tensor cores.
//
// Idea      gemm/v18_thirds splits each float into three bfloats, writes them to shared memory, and multiplies six of
//           their pairs. That pays if a float is used often and sums are long. FMAs need no splitting, and their tiles
//           start faster. Tiles can also be small, so that even a small c has many of them. Every tile has 128 threads
//           with 4 x 8 sums each, which is all of a tile of 64 x 64. The threads of a smaller tile are 2 to 16 groups.
//           Each group covers the tile, and adds the products of its share of the terms. Blocks of a cluster share a
//           long k, as in v18.
// Layout    as gemm/v18_thirds, but the tiles in shared memory are floats, with lines as in memory: if k is adjacent
//           there, a thread reads four terms of a row at a time, and otherwise four rows of a term. So no operand is
//           transposed, and cp.async copies floats straight to their places, even if lines start anywhere.
// Mapping   a cluster for a tile of c. Its SPLIT blocks share k. GROUPS groups of threads share the terms of a stage.
//           Thread -> rows and columns of the tile as Tile::row() says.
// Roofline  16 x 4096 x 4096: 68 MB, 0.020 ms at 3.35 TB/s. m = n = k = 128: 0.2 MB and 2 million FMAs, which take far
//           less than the 1.9 us of a launch that waits for the previous one. If c has many tiles, shared memory is the
//           limit: it fills 32 registers per clock, and a thread reads 12 floats for 32 FMAs. So for each term, a warp
//           reads for 12 clocks and multiplies for 8.
// Gain      over gemm/v18_thirds: expected in us on an H100, before anything was measured: 128^3, 4.7 to 3.3; 72 x 2096
//           x 16, 4.1 to 2.6; 2288 x 2016 x 16, 25 to 8; 100 x 100 x 3000, 10.7 to 6. Found: 2.3, 2.7, 10.7 and 7.4.
// Limits    products for which gemm/v18_thirds or gemm/v13_split takes longer by a model (variant.py). sm_90a.
// Hazards   a stage is written again once all threads have read it: after the next __syncthreads. Partial sums take the
//           place of the stages. No block of a cluster may end while others read its sums. A kernel that is launched
//           early must not access global memory before grid_wait().
// Source    as gemm/v3_registers; CUTLASS, "Efficient GEMM in CUDA" (sliced-k, split-k).
#include <mini_dnn/sums.cuh>

using Out = sums::Element<OUT_TYPE>;

#include "tiles.cuh"
#include "finish.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 5)
    gemm(const float* a, const float* b, const Out* c0, Out* c, int m, int n, int k, int a_pitch, int b_pitch,
         int c_pitch, float alpha, float beta) {
  extern __shared__ __align__(16) float memory[];  // stages, and later partial sums
  const int rank = blockIdx.x % SPLIT, columns = (n + COLUMNS - 1) / COLUMNS;
  const int tiles = (m + ROWS - 1) / ROWS * columns;  // in an entry
  const int entry = blockIdx.x / SPLIT / tiles, tile = blockIdx.x / SPLIT - entry * tiles;
  const int row0 = tile / columns * ROWS, column0 = tile % columns * COLUMNS;
  const int share = (k + 4 * SPLIT - 1) / (4 * SPLIT) * 4;  // terms of a block, in fours
  const int first = rank * share, end = min(first + share, k);
  const int group = threadIdx.x / (DOWN * ACROSS), in_group = threadIdx.x % (DOWN * ACROSS);
  const int down = in_group / ACROSS, across = in_group % ACROSS;
  A of_a(a + entry * (long long)(A_LINES ? k : m) * a_pitch, a_pitch, row0, m, first);
  B of_b(b + entry * (long long)(B_LINES ? k : n) * b_pitch, b_pitch, column0, n, first);

  auto copy = [&](int l0, int stage) {
    if (l0 < end) {
      of_a.copy(memory + stage * STAGE, end - l0);
      of_b.copy(memory + stage * STAGE + A::FLOATS, end - l0);
    }
    ptx::cp_async_commit();
  };
  ptx::grid_wait();
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) copy(first + i * TILE_K, i);
  ptx::grid_launch_dependents();

  Sums sums = {};
  int stage = 0;
#pragma unroll 1
  for (int l0 = first; l0 < end; l0 += TILE_K) {
    ptx::cp_async_wait<STAGES - 2>();
    __syncthreads();  // the stage is complete, and the previous one has been read
    copy(l0 + (STAGES - 1) * TILE_K, stage == 0 ? STAGES - 1 : stage - 1);
    multiply(sums, memory + stage * STAGE, group, down, across, min(end - l0, TILE_K));
    stage = stage == STAGES - 1 ? 0 : stage + 1;
  }

  const long long of_entry = (long long)entry * m * c_pitch;
  const sums::Matrix<Out> to = {c0 + of_entry, c + of_entry, m, n, c_pitch, alpha, beta};
  if constexpr (GROUPS == 1 && SPLIT == 1 && B_LINES) {
    store(sums, to, row0, column0, down, across);
  } else {
    __syncthreads();  // all stages have been read
    keep(sums, memory, group, down, across);
    if constexpr (GROUPS > 1 && SPLIT > 1) {
      __syncthreads();  // the partial sums of all groups are written
      add_groups(memory);
    }
    if constexpr (SPLIT > 1)
      ptx::cluster_sync();  // the partial sums of all blocks are written
    else
      __syncthreads();
    store_share(memory, to, row0, column0, rank);
    if constexpr (SPLIT > 1) {  // no block may end while others read its sums
      ptx::cluster_arrive_relaxed();
      ptx::cluster_wait();
    }
  }
}
