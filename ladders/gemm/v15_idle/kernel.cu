// gemm/v15_idle: gemm/v14_mixed for rows that start anywhere.
//
// Idea      gemm/v12_eighths reads a in place, but if n is odd, too, it first copies b. Its tiles are also smaller than
//           those of gemm/v14_mixed.
//           - Only the columns of b for the first tiles are copied before the product. Three warps that are idle in the
//             warpgroup that loads copy the others while tiles are multiplied. A flag for each 256 columns says that
//             they are there. Tiles follow each other in bands of columns, the first of which is narrow, so that new
//             columns are needed late.
//           - The tiles are those of gemm/v14_mixed. A pair of tiles has 256 rows of one class: rows e, e + PERIOD, e +
//             2 PERIOD, ..., where PERIOD is 8, as in gemm/v12_eighths, or 16. The copy engine reads whole sectors of
//             32 bytes. If PERIOD is 16, the rows of a class all start at the same place in a sector, so none of their
//             boxes touches more sectors than necessary.
// Layout    as gemm/v12_eighths: rows of a are shifted in shared memory, and rows of b begin as much earlier.
// Mapping   as gemm/v14_mixed. The step with the last terms of a tile is its first one, and has only as many products
//           as it needs. A warp that copies takes six rows of 256 columns from a queue. Bulk copies bring them to
//           shared memory, and the threads shift them and store them.
// Roofline  m = n = k = 8191: 1,100 GFLOP, 1.11 ms at 990 TFLOP/s, 1.31 at 1.6 GHz, to which power lowers the clock.
//           The copy of b moves 268 MB, 0.08 ms at an H100's 3.35 TB/s.
// Gain      over gemm/v12_eighths: 7 % at 8191 x 8191 x 8191 and at 4095 x 4095 x 4095, a third where its tiles fill
//           one round and those of gemm/v12_eighths do not.
// Limits    as gemm/v12_eighths; in addition, c in 16 bits, no beta, and 16 rows or more. m should be nearly a multiple
//           of 2,048, or of 4,096 for PERIOD = 16, because the last tiles of classes are not full. Other problems are
//           a call of gemm/v12_eighths.
// Hazards   as gemm/v12_eighths and gemm/v14_mixed. In addition: plain stores of the copy are ordered before its flag
//           by a fence of the GPU, and before reads of the copy engine by a fence between proxies, on both sides.
//           Blocks that wait for each other would never end if not all of them ran at once. Here, rows come from a
//           queue, so that a running block copies whatever another one waits for. Where paths meet between products of
//           a tile, ptxas needs wgmma_fence(), or it waits for each of them (C7519, C7520).
// Source    PTX ISA, "cp.async.bulk", "fence.proxy"; CUDA C++ Programming Guide, "Memory Fence Functions".
#include <mini_dnn/lines.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

constexpr bool A_TURNED = false, B_TURNED = false;
constexpr int BOX_BYTES = 64 * TILE_K * 2;                 // 64 rows of a, or columns of b
constexpr int CONSUMERS = 2, COPYING = 3;                  // warpgroups that multiply; warps that copy b
constexpr int BUFFERS = 3, PART_BYTES = 2048;              // of a warp: parts of 16 rows and 64 columns of c, staged
constexpr int OWN_REGISTERS = 232, OTHERS_REGISTERS = 40;  // of a thread that multiplies, and of one that does not

#include "../v8_final/stage.cuh"
#include "../v14_mixed/tiles.cuh"

constexpr int STAGE_BYTES = Tall::A_BYTES + Tall::B_BYTES;
static_assert(TILE_K == 64 && THREADS == (CONSUMERS + 1) * 128, "warpgroups that multiply, and one that copies");

#include "../v14_mixed/multiply.cuh"
#include "../v12_eighths/store.cuh"
#include "classes.cuh"
#include "first.cuh"
#include "copy.cuh"
#include "loads.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_idle(const __grid_constant__ ptx::TensorMap a_more, const __grid_constant__ ptx::TensorMap a_less,
              const __grid_constant__ ptx::TensorMap b, const __grid_constant__ ptx::TensorMap c_more,
              const __grid_constant__ ptx::TensorMap c_less, const Bits* b_from, Bits* b_to, int* flags, Out* c, int m,
              int n, int k, int b_pitch, int b_to_pitch, int c_pitch, int rows, int tall_columns, int flat_columns,
              int first, int early, float alpha) {
  extern __shared__ __align__(1024) char memory[];  // stages; parts of c; rows of b
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES], arrived[COPYING];
  const Copy copy{b_from, b_to, flags, n, k, b_pitch, b_to_pitch};
  const int rank = ptx::cluster_rank(), clusters = gridDim.x / 2;
  const Rows order{m, k};
  const Places tiles{rows, tall_columns, flat_columns, first};
  const int count = tiles.count();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  if (threadIdx.x == CONSUMERS * 128) {
    ptx::tensor_prefetch(a_more);
    ptx::tensor_prefetch(a_less);
    ptx::tensor_prefetch(b);
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, 2 * CONSUMERS * 4);  // the warps of both blocks that multiply
    }
    for (int i = 0; i < COPYING; i++) ptx::mbarrier_init(arrived + i, Copy::ROWS);
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();
  }
  __syncthreads();  // the mbarriers are initialised
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();  // those of the other block, too: each block fills stages of the other one
  ptx::grid_launch_dependents();

  Stage stage;
  if (warpgroup == CONSUMERS) {
    ptx::setmaxnreg_dec<OTHERS_REGISTERS>();
    if (threadIdx.x == CONSUMERS * 128) {
      const Loads loads{a_more, a_less, b, memory, full, empty, order, n};
      bool back = false;
      ptx::grid_wait();
      for (int i = blockIdx.x / 2; i < count; i += clusters, back = !back) {
        int row, column;
        tiles.find(i, rank, row, column);
        copy.wait(column, column + (i < tiles.tall() ? Tall::COLUMNS : Flat::COLUMNS), early);
        if (i < tiles.tall())
          loads.tile<Tall>(stage, back, rank, row, column);
        else
          loads.tile<Flat>(stage, back, rank, row, column);
      }
    } else if (const int copier = threadIdx.x / 32 - CONSUMERS * 4 - 1; copier >= 0 && early < copy.strips()) {
      ptx::grid_wait();
      copy.late(early, memory + STAGES * STAGE_BYTES + CONSUMERS * 4 * BUFFERS * PART_BYTES + copier * Copy::WARP_BYTES,
                arrived + copier);
    }
  } else {
    ptx::setmaxnreg_inc<OWN_REGISTERS>();
    const int lane = threadIdx.x % 32;
    char* const own = memory + STAGES * STAGE_BYTES + threadIdx.x / 32 * (BUFFERS * PART_BYTES);
    auto release = [&](int index) {
      if (lane < 2) ptx::mbarrier_arrive_cluster(empty + index, lane);
    };
    auto put = [&](auto& d, int row, int column) {  // rows of a warp
      const Unit unit = order.unit(row);
      const sums::Matrix<Out> to{
          c, c + (long long)unit.of * c_pitch, order.count(unit.of), n, PERIOD * c_pitch, alpha, 0.0f};
      store_pieces(d, unit.of < m % PERIOD ? c_more : c_less, to, own, unit.of * c_pitch + column, unit.row, column);
    };
    auto make = [&](auto kind, int i) {
      using Tile = decltype(kind);
      float d[Tile::GROUPS][4];
      int row, column, step = 1, before = stage.index;  // the stage of the previous step
      tiles.find(i, rank, row, column);
      const int steps = order.steps(row);
      // The first step does not read d. It is outside of the loop, so that ptxas sees that d ends with its tile.
      ptx::mbarrier_wait(full + stage.index, stage.parity);
      ptx::wgmma_fence();
      multiply_first<Tile>(d, memory + stage.index * STAGE_BYTES, warpgroup, __shfl_sync(~0u, order.first(row), 0));
      ptx::wgmma_commit();
      stage.next();
#pragma unroll 1
      do {
        ptx::mbarrier_wait(full + stage.index, stage.parity);
        ptx::wgmma_fence();
        multiply<Tile>(d, memory + stage.index * STAGE_BYTES, warpgroup, true);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();  // the previous step is complete: its stage may be filled again
        release(before);
        before = stage.index;
        stage.next();
      } while (++step < steps - (Tile::TALL ? TAIL : 0));

      tiles.find(i, rank, row, column);
      row += warpgroup * (Tile::ROWS / 2) + threadIdx.x / 32 % 4 * 16;
      if constexpr (Tile::TALL) {
        // The last steps compute half of the sums, and then the other half while the first one is stored.
        for (int j = 0; j < TAIL; j++) {
          const int index = stage.index + j;
          ptx::mbarrier_wait(full + index % STAGES, stage.parity ^ (index >= STAGES));
        }
        ptx::wgmma_fence();
        multiply_last<Tile, 0>(d, memory, stage, warpgroup);
        ptx::wgmma_wait<1>();
        release(before);
        multiply_last<Tile, 1>(d, memory, stage, warpgroup);
        ptx::wgmma_wait<1>(half_of<0>(d));
        put(half_of<0>(d), row, column);
        ptx::wgmma_wait<0>(half_of<1>(d));
        for (int j = 0; j < TAIL; j++, stage.next()) release(stage.index);
        put(half_of<1>(d), row + 64, column);
      } else {
        ptx::wgmma_wait<0>(d);
        release(before);
        put(d, row, column);
      }
    };
    for (int i = blockIdx.x / 2; i < count; i += clusters) {
      if (i < tiles.tall())
        make(Tall(), i);
      else
        make(Flat(), i);
    }
    if (lane == 0) ptx::bulk_wait_read<0>();
  }
  ptx::cluster_arrive_relaxed();  // the other block may still write to this one
  ptx::cluster_wait();
}
