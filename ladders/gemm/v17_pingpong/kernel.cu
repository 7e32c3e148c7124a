// gemm/v17_pingpong: draft
#include <mini_dnn/lines.cuh>
#include <mini_dnn/ptx_elect.cuh>
#include <mini_dnn/ptx_widths.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

constexpr int PLAYERS = 2, TEAM = TOGETHER ? PLAYERS : 1;  // warpgroups that multiply; of a tile
constexpr int TURNS = PLAYERS / TEAM;                      // tiles that they compute at a time
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
  __syncthreads();                     // the mbarriers are initialised
  if (SHARE > 1) {                     // those of the other blocks, too
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
