// gemm/v11_ahead: gemm/v10_small for products that depend on each other, as the layers of a network do.
//
// Idea      A kernel that is launched early waits for the previous one before it loads anything. In a chain of products
//           only a comes from there, while b is constant: weights. So one warp loads b at once, and another one waits,
//           and loads a. When the previous kernel ends, b is in shared memory, and only a has to come. So a tile should
//           have few rows of a and many columns of b. wgmma has 64 rows, therefore it computes c transposed: its rows
//           are columns of c, and its columns are ROWS rows of c, 16 to 128. All of k is in flight at once if it fits,
//           and then nothing waits for a free stage. A tile is found before the wait, and c is stored by one copy for
//           64 columns. The next kernel may start as soon as this one has asked for all of a: then two of them are
//           there at any time, and not blocks of several later ones, which only wait. Every other problem is a call of
//           gemm/v10_small. variant.py chooses by a model of the time.
// Layout    as gemm/v8_final. Two rings: A_STAGES of 64 k of ROWS rows of a, B_STAGES of COLUMNS columns of b. Results of
//           a tile are rows of 64 columns, with 128-byte swizzle.
// Mapping   a block for each tile; a warpgroup for 64 columns; a warp that loads a, and one for b.
// Roofline  m = n = k = 512: a multiprocessor loads 64 KB of b before the wait, and 64 KB of a after it: 1,000 clocks,
//           as long as its products take. With 800 until the first bytes are there, 600 until c is stored, and 1,600
//           from there to the next kernel: 4,000 clocks, 2.1 us at 1.9 GHz.
// Gain      over gemm/v10_small launched early, in a chain, expected and measured on an H100: GAIN
// Limits    16 bits, sm_90a; a row by row, lines that start at multiples of 16 bytes, c in 16 bits, no beta.
// Hazards   as gemm/v7_specialised. In addition: b is read before grid_wait() if the problem says that it is constant.
//           Nothing that may still run when the kernel starts may write it: no launch of the plan, and not the work
//           just ahead of the plan. The threads that multiply wait for a, and so for grid_wait(), before they write c.
//           A ring whose stages are never used twice needs no mbarriers for empty stages.
// Source    PTX ISA, "griddepcontrol", "stmatrix"; mini_dnn/implicit.cuh.
#include <mini_dnn/lines.cuh>
#include <mini_dnn/ptx_narrow.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

constexpr int A_BYTES = ROWS * TILE_K * 2, B_BYTES = COLUMNS * TILE_K * 2, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int GROUPS = ROWS / 8;                          // of 8 rows of c
constexpr int LOADER_OF_A = 128, LOADER_OF_B = 128 + 32;  // threads
static_assert(TILE_K == 64 && COLUMNS == 64 && THREADS == 192, "a warpgroup that multiplies, and two warps that load");

#include "../v8_final/stage.cuh"
#include "ring.cuh"
#include "tile.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    gemm_ahead(const __grid_constant__ ptx::TensorMap a, const __grid_constant__ ptx::TensorMap b,
               const __grid_constant__ ptx::TensorMap c, int m, int n, int k, float alpha) {
  extern __shared__ __align__(1024) char memory[];  // stages, then rows of c
  __shared__ Ring ring;
  char* const c_rows = memory + STAGES * STAGE_BYTES;
  const int steps = (k + TILE_K - 1) / TILE_K;
  const Tile tile(m, n);
  const bool of_a = threadIdx.x == LOADER_OF_A, of_b = threadIdx.x == LOADER_OF_B;
  int step = 0;  // of a thread that loads
  Stage stage;
  // Asks for stages until `last` steps are on their way.
  auto load_until = [&](int last) {
#pragma unroll 1
    for (; step < min(last, steps); step++, stage.next()) {
      char* const to = memory + stage.index * STAGE_BYTES;
      const int at = step * TILE_K;
      if (step >= STAGES) ptx::mbarrier_wait(ring.empty + stage.index, stage.parity ^ 1);
      if (of_a) {
        ptx::mbarrier_arrive_expect_tx(ring.full_a + stage.index, A_BYTES);
        ptx::tensor_load(to, a, at, tile.row, tile.entry, ring.full_a + stage.index);
      } else {
        ptx::mbarrier_arrive_expect_tx(ring.full_b + stage.index, B_BYTES);
        ptx::tensor_load(to + A_BYTES, b, B_TURNED ? at : tile.column, B_TURNED ? tile.column : at, tile.entry,
                         ring.full_b + stage.index);
      }
    }
  };
  auto start_a = [&] {
    ptx::grid_wait();
    load_until(STAGES);
    ptx::grid_launch_dependents();
  };
  if (of_a) {
    ptx::tensor_prefetch(a);
    ptx::tensor_prefetch(c);
    ring.init_a();
    if (!AHEAD) start_a();
  } else if (of_b) {
    ptx::tensor_prefetch(b);
    ring.init_b();
    if (!AHEAD) ptx::grid_wait();
    load_until(STAGES);
  }
  __syncwarp();     // the lanes of a warp reach the barrier together
  __syncthreads();  // the mbarriers are initialised

  if (threadIdx.x < LOADER_OF_A) {
    float d[GROUPS][4];
    multiply(d, memory, ring, steps);
    stage_rows(d, alpha, c_rows);
  } else {
    if (AHEAD && of_a) start_a();
    if (!WHOLE && (of_a || of_b)) load_until(steps);
    __syncwarp();
  }
  __syncthreads();  // rows of c are complete
  if (threadIdx.x == 0) {
    ptx::tensor_store(c, tile.column, tile.row, tile.entry, c_rows);
    ptx::bulk_commit();
    ptx::bulk_wait_read<0>();  // before the block exits and its memory is reused
  }
}
