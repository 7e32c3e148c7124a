// gemm/v16_pingpong: gemm/v11_ahead with warpgroups that take turns, and with copies and clusters that cost less.
//
// Idea      While a block stores a tile, its tensor cores have nothing to do. Here each of two warpgroups has a tile of
//           its own ("ping-pong"): while one stores, the other one multiplies. A tile of half the size also fills
//           rounds better. If k is long, both warpgroups compute one tile together, because a larger tile needs fewer
//           bytes. Traces showed that more time was lost elsewhere:
//           1. If the thread that starts the copies is chosen by its index, the compiler moves the arguments of each
//              copy to uniform registers in a loop, which takes 170 clocks. If a warp agrees on them, with
//              ptx::elect(), it takes about 60.
//           2. If the warps that multiply give stages back to other blocks of a cluster, a step takes 90 clocks longer.
//              Another warp does that for them.
//           3. A release at the first barrier of the cluster is a fence, which takes 1,000 clocks. mbarriers do not
//              need it.
//           4. The last barrier of a cluster takes 1,300. It is not needed if stages that nobody fills again are not
//              given back.
//           5. Warpgroups can wait for the first stage as soon as it is requested, instead of all stages.
//           6. The last tile of a block is staged as a whole, with one barrier for all of its pieces.
// Layout    as gemm/v11_ahead: the rows of the instruction are columns of c. Stages have ROWS rows of a and COLUMNS
//           columns of b, and there are as many as fit, up to 16.
// Mapping   a block on each multiprocessor, clusters of up to eight. Warpgroups 0 and 1 multiply, 64 or 128 columns
//           each: tile after tile in turn, or the same tile. Of the third one, a warp loads a, one loads b, and one
//           gives stages back.
// Roofline  m = n = k = 3072: 58 GFLOP, 0.059 ms at 990 TFLOP/s; 128 tiles of 192 x 128, three on each multiprocessor.
//           1496 x 3072 x 240: 2.2 GFLOP, 0.0022 ms, but 17.8 MB of which 9.2 are stored: 0.0053 ms at 3.35 TB/s.
// Gain      over gemm/v11_ahead: 3 to 20 % where k is shorter than 400, from turns.
// Limits    as gemm/v11_ahead. Products of fewer than 2e8 terms are left to other rungs, which start faster.
// Hazards   as gemm/v11_ahead. In addition:
//           - The turns are needed for correct results, not only for speed. A warpgroup waits for a stage by the parity
//             of its phase, and would not notice that it is two phases early. When it is its turn, the other warpgroup
//             has seen all earlier phases.
//           - The last tile is staged where the stages were, when all products of the block are complete.
//           - A block may end before the other blocks of its cluster. Copies of other blocks to it are complete,
//             because it has waited for them. All arrivals at its mbarriers have been awaited by its own loads, because
//             stages that are not filled again are not given back.
// Source    CUTLASS, "KernelTmaWarpSpecializedPingpong"; PTX ISA, "elect.sync", "mbarrier.arrive".
#include <mini_dnn/lines.cuh>
#include <mini_dnn/ptx_elect.cuh>
#include <mini_dnn/ptx_widths.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

constexpr int PLAYERS = 2, TEAM = TOGETHER ? PLAYERS : 1;              // warpgroups that multiply; of a tile
constexpr int TURNS = PLAYERS / TEAM;                                  // tiles that they compute at a time
constexpr int OWN_COLUMNS = 64 * PAIRS, COLUMNS = OWN_COLUMNS * TEAM;  // of a warpgroup; of a tile
constexpr int GROUPS = ROWS / 8;                                       // of 8 rows, as c is transposed
constexpr int A_BYTES = ROWS * TILE_K * 2, B_BYTES = COLUMNS * TILE_K * 2, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int BOX_BYTES = 64 * TILE_K * 2;  // of 64 columns of b
constexpr int SHARE = SHARE_A * SHARE_B;
constexpr int LOADER_OF_A = PLAYERS * 4, LOADER_OF_B = LOADER_OF_A + 1, MESSENGER = LOADER_OF_A + 2;  // warps
constexpr int OWN_REGISTERS = 232, OTHERS_REGISTERS = 40;  // of a thread that multiplies, and of one that does not
static_assert(TILE_K == 64 && THREADS == (PLAYERS + 1) * 128, "warpgroups that multiply, and one that loads");

#include "../v8_final/stage.cuh"
#include "steps.cuh"
#include "ring.cuh"
#include "loads.cuh"
#include "multiply.cuh"
#include "store.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_pingpong(const __grid_constant__ ptx::TensorMap a, const __grid_constant__ ptx::TensorMap b,
                  const __grid_constant__ ptx::TensorMap c, int m, int n, int k, int batch, float alpha) {
  extern __shared__ __align__(1024) char memory[];  // stages; pieces of c
  __shared__ Ring ring;
  const int rank = SHARE > 1 ? ptx::cluster_rank() : 0, clusters = gridDim.x / SHARE, first = blockIdx.x / SHARE;
  const Places places{(m + SHARE_B * ROWS - 1) / (SHARE_B * ROWS), (n + SHARE_A * COLUMNS - 1) / (SHARE_A * COLUMNS)};
  const int count = places.rows * places.columns * batch;
  const Loads loads{a, b, memory, ring, places, rank, clusters, count, k};
  Loads::Progress progress;
  loads.begin(progress, first);
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // so the compiler knows that a warp agrees
  if (warp == LOADER_OF_A) {
    if (ptx::elect()) {
      ptx::tensor_prefetch(a);
      ring.init_full(ring.full_a);
    }
    __syncwarp();  // the mbarriers are initialised
    if (SHARE == 1) loads.start<true>(progress);
  } else if (warp == LOADER_OF_B) {
    if (ptx::elect()) {
      ptx::tensor_prefetch(b);
      ring.init_full(ring.full_b);
    }
    __syncwarp();  // the mbarriers are initialised
    if (SHARE == 1) loads.start<false>(progress);
  } else if (warp == 0) {
    if (ptx::elect()) {
      ptx::tensor_prefetch(c);
      ring.init();
    }
    __syncwarp();  // the lanes of a warp reach the barrier together
  }
  __syncthreads();  // the mbarriers are initialised
  if (SHARE > 1) {  // those of the other blocks, too
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
  ptx::grid_launch_dependents();

  const int player = warp / 4;
  if (player < PLAYERS) {
    ptx::setmaxnreg_inc<OWN_REGISTERS>();
    const Pieces out{c, memory, memory + STAGES * STAGE_BYTES + player * (BUFFERS * PIECE * 128), ring, player, alpha};
    const int own = first + player / TEAM * clusters;  // the first tile
    Stage stage;
    int tiles = 0, row, column, entry;
    auto finish = [&] {  // this warp has nothing more to multiply
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&ring.done);
    };
    if (own >= count) finish();
    if (TURNS > 1 && player == 1) skip(stage, steps_of(places, first, rank, k));
    for (int tile = own; tile < count; tile += TURNS * clusters, tiles++) {
      float d[PAIRS][GROUPS][4];
      places.find(tile, rank, row, column, entry);
      if (TURNS > 1) ptx::mbarrier_wait(ring.turn + player, (tiles + player + 1) % 2);
      multiply(d, memory, ring, stage, steps(k, entry), player);
      const bool last = tile + clusters >= count;  // of the block: its stages are not used again
      if (tile + TURNS * clusters >= count) finish();
      if (last) ptx::mbarrier_wait(&ring.done, 0);
      out.store(d, tiles, row, column, entry, last);
      if (TURNS > 1) skip(stage, steps_of(places, tile + clusters, rank, k));
    }
    if (threadIdx.x % 128 == 0) ptx::bulk_wait_read<0>();  // memory of a block must outlive its copies
  } else {
    ptx::setmaxnreg_dec<OTHERS_REGISTERS>();
    if (warp == LOADER_OF_A) {
      if (SHARE > 1) loads.start<true>(progress);
      loads.until<true>(progress, 1 << 30);
    } else if (warp == LOADER_OF_B) {
      if (SHARE > 1) loads.start<false>(progress);
      loads.until<false>(progress, 1 << 30);
    } else if (SHARE > 1 && warp == MESSENGER) {
      loads.give_back();
    }
  }
}
