// gemm/v11_ahead: gemm/v10_small for products that depend on each other, as the layers of a network do.
//
// Idea      A kernel that is launched early waits for the previous one before it loads anything. In a chain of
//           products, only a is the result of the previous kernel, while b holds constant weights.
//           1. b is loaded early. One warp loads b at once, and another one waits and then loads a. When the previous
//              kernel ends, b is in shared memory or on its way, and only a remains to be loaded. If most
//              multiprocessors have a tile, only some stages of b are loaded before the wait, because more would delay
//              a. The next kernel may start when this one has requested as much of a as there is room for.
//           2. c is transposed. A tile should now have few rows of a. wgmma has 64 rows or more, but 8 columns or more,
//              so the rows of the instruction are 64 columns of c, and its columns are ROWS rows of c, 16 to 256. If
//              all of k is in flight at once, nothing waits for a free stage. A block has one tile, whose place in c
//              follows from the block's place in the grid. Such tiles are also faster if nothing is constant.
//           3. Tiles fill the rounds. ROWS is any multiple of 16, so there is a size with which the last round is
//              nearly full. Products of several rounds have tiles of one size (rounds.cuh).
//           4. Clusters share operands. Up to eight blocks of a cluster share rows of a and columns of b, so that L2
//              delivers less. If there are few tiles and k is long, two or four blocks share the k of a tile, and send
//              each other parts of their sums, as in gemm/v8_final.
//           5. Wide tiles, if those of 128 x 192 or 128 x 256 take one round: c is not transposed, two warpgroups have
//              64 rows each, and no blocks of a cluster wait for each other. If there are 256 columns, the last
//              three steps multiply the first half of them and then the second half, so that the first half is stored
//              while the second one is multiplied. Warpgroup 1 starts these steps when warpgroup 0 has nearly finished
//              them, so that only a quarter of the tile is left to be stored at the end. The second half goes out
//              through the stage that would be loaded next, so that it does not wait for memory. Such a block requests
//              two stages at once, and the others when the first one has arrived, because loads of all multiprocessors
//              delay each other.
//           variant.py has a model of the time, which chooses among all of these and the tiles of gemm/v10_small and
//           gemm/v8_final.
// Layout    as gemm/v8_final. Stages have ROWS rows of a and COLUMNS columns of b. The results of a tile are ROWS lines
//           of 128 bytes with 128-byte swizzle; if blocks share k, each has its part of these lines; of a wide tile,
//           each warp has two parts of 16 rows and 64 columns.
//           HALVES: the copy engine reads whole sectors of 32 bytes. If the pitch of a is an odd multiple of 16 bytes,
//           every second row starts in the middle of one, and a box of such rows takes twice as long. A tile then has
//           only even or only odd rows of a and c, and the boxes of odd rows begin 8 terms earlier, where a sector
//           starts.
// Mapping   a block or a cluster for each tile, or for tile after tile; one to three warpgroups multiply, one warp
//           loads a and another one b.
// Roofline  m = n = k = 512: 0.27 GFLOP, 0.0003 ms at 990 TFLOP/s. A block loads 64 KB of b before the wait, and 32 KB
//           of a after it: 500 clocks. With 700 until the first of them are there, 1,000 of products, 500 until c is
//           stored, and 1,600 from there to the next wait: 4,300 clocks, 0.0022 ms at 1.98 GHz. 275 x 880 x 3840: 1.9
//           GFLOP, 0.0019 ms; 84 blocks load 600 KB each, 0.0050 ms at 60 bytes per clock. 2048: 17 GFLOP, 0.0174 ms;
//           32,800 clocks of products, 2,000 until the first of them, 2,000 until the second half of c is stored, and
//           2,400 to the next kernel: 0.0238 ms at 1.65 GHz, to which power lowers the clock.
// Gain      over gemm/v10_small launched early, in a chain of dependent products on an H200, expected in us: 512, 3.07
//           to 2.6; 1024, 5.3 to 5.0; 256, 2.27 to 1.9; 128, 1.89 to 1.6. For independent products that are launched in
//           order, no gain was expected, but there is one, because such tiles suit small products. For
//           275 x 880 x 3840, with two blocks per tile, 11.1 to 10. For 2048 on an H100, 26.0 to 25.3 in order, and
//           25.1 to 24.4 in a chain; with turns in the last steps, 24.5 and 23.4.
// Limits    16 bits, sm_90a; a row by row, lines that start at multiples of 16 bytes, c in 16 bits, no beta.
// Hazards   as gemm/v7_specialised. In addition:
//           - b is read before grid_wait() if the problem says that it is constant. Nothing that may still run when the
//             kernel starts may write it: no launch of the plan, and not the work just before the plan.
//           - The threads that multiply wait for a, and so for grid_wait(), before c is written.
//           - No block of a cluster may exit while another one sends it sums or boxes.
//           - A stage is free when all blocks that receive boxes of this one have read it: those below it and those
//             beside it.
//           - Half of a wide tile of c is written to a stage that all warps have read, and that nothing fills again.
//           - The product of 256 columns before the halves may still be in flight when they start. Only wgmma_fence()
//             orders products of another shape.
// Source    PTX ISA, "griddepcontrol", "stmatrix"; mini_dnn/implicit.cuh.
#include <mini_dnn/lines.cuh>
#include <mini_dnn/ptx_elect.cuh>
#include <mini_dnn/ptx_widths.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

constexpr int A_BYTES = ROWS * TILE_K * 2, B_BYTES = COLUMNS * TILE_K * 2, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int BOX_BYTES = 64 * TILE_K * 2;  // of 64 columns of b
constexpr int SHARE = SHARE_A * SHARE_B;
constexpr int WARPGROUPS = (WIDE ? ROWS : COLUMNS) / 64 / PAIRS;  // WIDE: c is not transposed
constexpr int GROUPS = (WIDE ? COLUMNS : ROWS) / 8;               // of 8 columns of c; of 8 rows if c is transposed
constexpr int PART = GROUPS / SPLIT;    // of those that one of the blocks that share k adds up and stores
constexpr int ROWS_BYTES = 8 * 64 * 2;  // of 8 rows of c before they are stored
constexpr int SLOT = WARPGROUPS * 128;  // four sums from another block: a place for each thread
constexpr int LOADER_OF_A = WARPGROUPS * 4, LOADER_OF_B = LOADER_OF_A + 1;  // warps
// Stages that a block with a wide tile requests before its first one has arrived. More of them would delay it.
constexpr int BURST = 2;
// A warp can start its loads before the other one has initialised its mbarriers. But if all of k is in flight and only
// a part of b is loaded before the wait, this was found to make a chain of products slower.
constexpr bool MEET_FIRST = !WIDE && WHOLE && AHEAD > 0 && AHEAD < STAGES;
static_assert(TILE_K == 64 && THREADS == WARPGROUPS * 128 + (PAIRS > 1 ? 128 : 64),
              "warpgroups that multiply, and two warps that load");
static_assert(GROUPS % (2 * SPLIT) == 0, "equal parts, of pairs of groups");

#include "../v8_final/stage.cuh"
#include "../v8_final/add_up.cuh"
#include "ring.cuh"
#include "tile.cuh"
#include "wide.cuh"

#if ROUNDS
#include "rounds.cuh"
#else
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    gemm_ahead(const __grid_constant__ ptx::TensorMap a, const __grid_constant__ ptx::TensorMap b,
               const __grid_constant__ ptx::TensorMap c, int k, float alpha) {
  extern __shared__ __align__(1024) char memory[];  // stages; rows of c; sums of other blocks
  __shared__ Ring ring;
  char* const c_rows = memory + STAGES * STAGE_BYTES;
  const int row = blockIdx.x / SPLIT * ROWS, column = blockIdx.y * COLUMNS, entry = blockIdx.z;
  const int rank = blockIdx.x % SPLIT, all = (k + TILE_K - 1) / TILE_K;
  const int first = all * rank / SPLIT, steps = all * (rank + 1) / SPLIT - first;
  int step = 0;  // of a warp that loads
  Stage stage;
  // Requests the next stage of a, or of b. All threads of a warp call this, and one of them starts the copies.
  auto load = [&](auto which) {
    constexpr bool is_a = decltype(which)::value;
    ptx::mbarrier* const full = (is_a ? ring.full_a : ring.full_b) + stage.index;
    char* const to = memory + stage.index * STAGE_BYTES;
    const int at = (first + step) * TILE_K;
    if (WIDE && step == BURST) ptx::mbarrier_wait(is_a ? ring.full_a : ring.full_b, 0);
    if (step >= STAGES) ptx::mbarrier_wait(ring.empty + stage.index, stage.parity ^ 1);
    if (ptx::elect()) {
      ptx::mbarrier_arrive_expect_tx(full, is_a ? A_BYTES : B_BYTES);
      if (is_a) {
        ptx::tensor_load(to, a, at, row, entry, full);
      } else {
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 64)
          ptx::tensor_load(to + A_BYTES + j / 64 * BOX_BYTES, b, B_TURNED ? at : column + j, B_TURNED ? column + j : at,
                           entry, full);
      }
    }
    step++, stage.next();
  };
  auto load_until = [&](auto which, int last) {
#pragma unroll 1
    while (step < min(last, steps)) load(which);
  };
  // The first stage, or all stages that are loaded before the wait.
  auto start = [&](auto which) {
    constexpr bool is_a = decltype(which)::value;
    if (is_a || AHEAD == 0) ptx::grid_wait();
    load(which);  // every k has a first stage, so this need not wait until k has been read
    if (!is_a) load_until(which, AHEAD);
  };
  auto go_on = [&](auto which) {
    constexpr bool is_a = decltype(which)::value;
    if (!is_a && AHEAD > 0 && AHEAD < STAGES) ptx::grid_wait();  // a comes first
    load_until(which, STAGES);
    if (is_a) ptx::grid_launch_dependents();
    if (!WHOLE) load_until(which, steps);
  };
  constexpr std::true_type of_a;
  constexpr std::false_type of_b;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // so the compiler knows that a warp agrees
  if (warp == LOADER_OF_A) {
    if (ptx::elect()) {
      ptx::tensor_prefetch(a);
      ring.init_a();
    }
    __syncwarp();  // the mbarriers are initialised
    if (!MEET_FIRST) start(of_a);
  } else if (warp == LOADER_OF_B) {
    if (ptx::elect()) {
      ptx::tensor_prefetch(b);
      ring.init_b();
    }
    __syncwarp();  // the mbarriers are initialised
    if (!MEET_FIRST) start(of_b);
  } else if (warp == 0) {
    if (ptx::elect()) {
      ptx::tensor_prefetch(c);
      ring.init_empty();
    }
    __syncwarp();  // the lanes of a warp reach the barrier together
  }
  __syncthreads();  // the mbarriers are initialised
  if (SPLIT > 1) ptx::cluster_arrive_relaxed();

  const int warpgroup = warp / 4;
  if (warpgroup < WARPGROUPS) {
    float d[GROUPS][4];
    if constexpr (WIDE) {
      int before = 0;  // the stage of the previous step
      multiply_wide(d, memory, ring, steps, warpgroup, stage, before);
      store_wide(d, c, alpha, memory, ring, stage, before, row, column, entry);
    } else {
      char* const own = c_rows + warpgroup * PART * ROWS_BYTES;
      multiply(d, memory, ring, steps, warpgroup);
      if constexpr (SPLIT > 1) {
        float sum[PART][4];
        ptx::cluster_wait();  // the other blocks have started, and their mbarriers are initialised
        add_up(d, sum, reinterpret_cast<float4*>(c_rows + WARPGROUPS * PART * ROWS_BYTES), &ring.landed, rank);
        stage_rows<PART>(sum, 0, alpha, own);
      } else {
        stage_rows<PART>(d, 0, alpha, own);
      }
    }
  } else if (warp == LOADER_OF_A) {
    if (MEET_FIRST) start(of_a);
    go_on(of_a);
  } else if (warp == LOADER_OF_B) {
    if (MEET_FIRST) start(of_b);
    go_on(of_b);
  }
  if (WIDE) return;  // each warp has stored its rows
  if (SPLIT > 1 && warp >= LOADER_OF_A) ptx::cluster_wait();
  __syncthreads();  // rows of c are complete
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < WARPGROUPS; i++)
      ptx::tensor_store(c, column + 64 * i, row + rank * PART * 8, entry, c_rows + i * PART * ROWS_BYTES);
    ptx::bulk_commit();
    ptx::bulk_wait_read<0>();  // before the block exits and its memory is reused
  }
  if (SPLIT > 1) {  // other blocks may still write to this one
    __syncwarp();
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}
#endif
