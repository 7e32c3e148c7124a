// gemm/v14_mixed: gemm/v8_final with larger tiles for large products.
//
// Idea      A large product runs at the power limit: the clock falls until the GPU takes 700 W. Whatever costs energy
//           therefore costs time, above all bytes from L2 and from memory.
//           - Tall tiles of 256 x 192, in clusters of two, read a sixth fewer bytes from L2 than flat tiles of 128 x
//             256. A tall tile has as many sums as the registers can hold. Each of two warpgroups has 128 rows, which
//             are 192 sums per thread, and takes registers from the warpgroup that copies.
//           - Flat tiles fill the last round. 8192^3 has 10.4 rounds of tall tiles on 132 multiprocessors, so the last
//             one would be half empty. Flat tiles, which are a third smaller, therefore cover the last columns of c, as
//             many as make the rounds full: 8192^3 is ten tall tiles and one flat tile on each of 128 multiprocessors,
//             and 4096^3 two and one.
//           - Every second tile of a block starts with the end of k, some of which is still in L2.
//           - The last two steps of a tile compute half of its sums, and then the other half while the first one is
//             stored.
//           variant.py decides by a model of the time which products gain, and how their columns are divided. All
//           others are calls of gemm/v16_pingpong.
// Layout    as gemm/v8_final. The two blocks of a cluster are beside each other and share a if their tiles are tall, or
//           below each other and share b if they are flat. Each loads half of the shared operand for both.
// Mapping   a block on each multiprocessor, clusters of two; two warpgroups multiply, a third one has a warp that
//           loads. Tall tiles are processed first, then flat ones, each in bands of BAND columns, row by row.
// Roofline  m = n = k = 8192: 1,100 GFLOP, 1.11 ms at 990 TFLOP/s, 1.31 at 1.6 GHz, to which power lowers the clock.
//           403 MB, each byte once: 0.12 ms at an H100's 3.35 TB/s.
// Gain      over gemm/v8_final in bursts: 3 % at 8192^3, 2.5 % at 4096^3.
// Limits    16 bits, sm_90a; lines that start at multiples of 16 bytes, c in 16 bits, no beta, k of more than 192.
// Hazards   as gemm/v8_final. In addition: ptxas may find too few registers for a tile's sums. It then waits for each
//           product and prints the message C7511. To avoid this, the first step is outside of the loop, because ptxas
//           would otherwise keep the sums of both kinds of tiles, and the stages of the last steps are computed from
//           the stage before them. Even a change of the loads may bring the message back. tests/test_nvcc.py checks
//           that it does not appear.
// Source    CUTLASS, "Efficient GEMM in CUDA"; PTX ISA, "setmaxnreg".
#include <mini_dnn/ptx_elect.cuh>
#include <mini_dnn/sums.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

constexpr int BOX_BYTES = 64 * TILE_K * 2;                 // 64 rows of a, or columns of b
constexpr int A_BOX = A_TURNED ? 64 : 128;                 // rows of a that one copy loads
constexpr int CONSUMERS = 2;                               // warpgroups that multiply
constexpr int BUFFERS = 3, PART_BYTES = 2048;              // of a warp: parts of 16 rows and 64 columns of c, staged
constexpr int OWN_REGISTERS = 232, OTHERS_REGISTERS = 40;  // of a thread that multiplies, and of one that does not

#include "../v8_final/stage.cuh"
#include "tiles.cuh"

constexpr int STAGE_BYTES = Tall::A_BYTES + Tall::B_BYTES;
static_assert(TILE_K == 64 && THREADS == (CONSUMERS + 1) * 128, "warpgroups that multiply, and one that copies");

#include "loads.cuh"
#include "multiply.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_mixed(const __grid_constant__ ptx::TensorMap a, const __grid_constant__ ptx::TensorMap b,
               const __grid_constant__ ptx::TensorMap c, int rows, int k, int tall_columns, int flat_columns, int batch,
               float alpha) {
  extern __shared__ __align__(1024) char memory[];  // stages; parts of c
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES];
  const int rank = ptx::cluster_rank(), clusters = gridDim.x / 2, steps = (k + TILE_K - 1) / TILE_K;
  const Tiles tiles{rows, tall_columns, flat_columns, batch};
  const int count = tiles.count();
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0),
            warpgroup = warp / 4;  // the compiler knows that a warp agrees
  if (threadIdx.x == CONSUMERS * 128) {
    ptx::tensor_prefetch(a);
    ptx::tensor_prefetch(b);
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, 2 * CONSUMERS * 4);  // the warps of both blocks that multiply
    }
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
    if (warp == CONSUMERS * 4) {
      const Loads loads{a, b, memory, full, empty};
      bool back = false;
      ptx::grid_wait();
      for (int i = blockIdx.x / 2; i < count; i += clusters, back = !back) {
        int row, column, entry;
        tiles.find(i, rank, row, column, entry);
        if (i < tiles.tall())
          loads.tile<Tall>(stage, steps, back, rank, row, column, entry);
        else
          loads.tile<Flat>(stage, steps, back, rank, row, column, entry);
      }
    }
  } else {
    ptx::setmaxnreg_inc<OWN_REGISTERS>();
    const int lane = threadIdx.x % 32;
    char* const own = memory + STAGES * STAGE_BYTES + threadIdx.x / 32 * (BUFFERS * PART_BYTES);
    auto release = [&](int index) {
      if (lane < 2) ptx::mbarrier_arrive_cluster(empty + index, lane);
    };
    auto make = [&](auto kind, int i) {
      using Tile = decltype(kind);
      float d[Tile::GROUPS][4];
      int row, column, entry, step = 1, before = stage.index;  // the stage of the previous step
      // The first step does not read d. It is outside of the loop, so that ptxas sees that d ends with its tile.
      ptx::mbarrier_wait(full + stage.index, stage.parity);
      ptx::wgmma_fence();
      multiply<Tile>(d, memory + stage.index * STAGE_BYTES, warpgroup, false);
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
      } while (++step < steps - TAIL);

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
      tiles.find(i, rank, row, column, entry);
      row += warpgroup * (Tile::ROWS / 2) + threadIdx.x / 32 % 4 * 16;
      ptx::wgmma_wait<1>(half_of<0>(d));
      store<0>(half_of<0>(d), c, alpha, own, row, column, entry);
      ptx::wgmma_wait<0>(half_of<1>(d));
#pragma unroll 1
      for (int j = 0; j < TAIL; j++, stage.next()) release(stage.index);
      store<1>(half_of<1>(d), c, alpha, own, row + (Tile::TALL ? 64 : 0), column + (Tile::TALL ? 0 : 128), entry);
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
