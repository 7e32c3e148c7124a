// gemm/v8_final: gemm/v7_specialised for every shape: clusters, split sums, small tiles, odd pitches, vectors.
//
// Idea      The remaining gains are outside the main loop. Two blocks form a cluster: each loads half of the columns of
//           b that both need, for both (multicast), so that L2 delivers a third less. If there are fewer tiles than
//           multiprocessors, tiles are smaller, or a cluster shares the k of a tile and adds its sums in shared memory.
//           If k is very long, more blocks share it: they store their sums, and a second kernel adds them. wgmma has
//           64 rows or more, so a small product has few tiles, and each multiprocessor that has one loads for long.
//           Tiles of 16 rows use cp.async and mma.sync as in gemm/v5_mma_async, with all of k in flight (small.cuh).
//           The copy engine requires lines that start at multiples of 16 bytes. Other operands are first copied to such
//           lines, both in one launch. If that takes longer than the product, warpgroups load them by hand: they load
//           two aligned pieces of 16 bytes for each eight elements, and shift them in registers. c is stored from
//           shared memory, for any pitch. A product with a vector uses no tensor cores: it reads the matrix once. A
//           kernel that is launched early is set up while the previous one ends, and waits before it reads.
//           mini_dnn/plans/gemm_tiles.py chooses among all of these by a model of the time.
// Layout    as gemm/v7_specialised. The SHARE blocks of a cluster are below each other and share b: block i loads the
//           i-th part of the boxes of each tile of b. If blocks share k, each of SPLIT blocks has a part of the steps.
//           Without a cluster these are PARTS blocks, whose sums are whole tiles of floats in memory (shares.cuh).
//           Boxes that are loaded by hand, 64 lines of 64 elements, have the layout of the engine. Copies have lines of
//           whole cache lines.
// Mapping   a block on each multiprocessor; ROWS / 64 warpgroups consume; one warp produces, or LOADERS warpgroups
//           produce by hand, with alternating stages. Tiles are processed in bands of BAND rows of clusters, column by
//           column. Small tiles: four warps, each with 16 of every 64 k. Vectors: a warp for a line, or a block for 64
//           of them.
// Roofline  m = n = k = 4096: 137 GFLOP, 0.14 ms at 990 TFLOP/s, in practice 0.175 because power lowers the clock. L2
//           delivers 32 KB for 1,024 clocks of products. 512: 3 us, most of it for the launch and the first loads.
//           Copies of odd operands: 0.034 ms at 4095.
// Gain      over gemm/v7_specialised: none at 4096, where both are as fast as cuBLAS; a factor of 2.2 at 512 and 1024;
//           support for odd sizes. Small tiles: 15 % at 256.
// Limits    16 bits, sm_90a. Operands that are loaded by hand need pitches below 2^24.
// Hazards   as gemm/v7_specialised. In addition: a stage is free when the consumers of both blocks have read it,
//           because each of the two blocks fills stages of both. A warp that has read a stage therefore arrives at the
//           mbarriers of both blocks. No block may exit while another one writes to it, or arrives there. This arrival
//           is relaxed, because it publishes nothing, whereas a release would be a fence of the whole GPU. An address
//           in a cluster has the rank of the block in its upper bits. A matrix descriptor has no room for them, so it
//           needs the address within the block. A kernel that is launched early must not access global memory before
//           grid_wait(): producers wait, and the others wait for them. wgmma sees the writes of threads to a stage only
//           after fence_proxy_async() by each of them. If an operand ends within a piece of 16 bytes, this piece is not
//           read as a whole.
// Source    PTX ISA, "cp.async.bulk.tensor" (multicast), "st.async", "griddepcontrol"; CUTLASS, "Efficient GEMM in
//           CUDA".
#include "copies.cuh"
#include "loads.cuh"
#include "shares.cuh"
#include "small.cuh"
#include "vectors.cuh"

template <class Loads>
__device__ __forceinline__ void product(const Loads& loads, float* partial, const ptx::TensorMap* c_map, const Out* c0,
                                        Out* c, int m, int n, int k, int c_pitch, int batch, float alpha, float beta) {
  extern __shared__ __align__(1024) char memory[];  // stages; results of warps; sums of other blocks
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES], landed;
  const int rank = CLUSTER > 1 ? ptx::cluster_rank() : 0, clusters = gridDim.x / CLUSTER;
  const Tiles tiles{(m + SHARE * ROWS - 1) / (SHARE * ROWS), (n + COLUMNS - 1) / COLUMNS, (k + TILE_K - 1) / TILE_K};
  const int count = tiles.rows * tiles.columns * batch * PARTS;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  char* const staged = memory + STAGES * (A_BYTES + B_BYTES);
  float4* const slots = reinterpret_cast<float4*>(staged);  // blocks that split sums do not stage results
  if (threadIdx.x == CONSUMERS * 128) {
    loads.prefetch();
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, Loads::ARRIVALS);
      ptx::mbarrier_init(empty + i, CONSUMERS * 4 * SHARE);  // every warp that multiplies
    }
    ptx::mbarrier_init(&landed, 1);
    if (SPLIT > 1) ptx::mbarrier_arrive_expect_tx(&landed, (SPLIT - 1) * PART * SLOT * 16);
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();
  }
  __syncthreads();
  if (CLUSTER > 1) ptx::cluster_arrive_relaxed();
  if (SHARE > 1) ptx::cluster_wait();  // others fill this block's stages immediately, and send sums much later
  ptx::grid_launch_dependents();

  if (warpgroup >= CONSUMERS) {
    loads.run(memory, full, empty, tiles, count, rank);
    __syncwarp();
    if (SPLIT > 1) ptx::cluster_wait();
  } else {
    Stage stage;
    int row, column, entry, first, last;
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
    auto release = [&](int index) {
      if constexpr (SHARE > 1) {
        if (lane < SHARE) ptx::mbarrier_arrive_cluster(empty + index, lane);
      } else {
        if (lane == 0) ptx::mbarrier_arrive(empty + index);
      }
    };
    char* const own = staged + threadIdx.x / 32 * STAGED_BYTES;
    for (int i = blockIdx.x / CLUSTER; i < count; i += clusters) {
      float d[GROUPS][4];
      int before = 0;  // the stage of the previous step
      tiles.range(i, rank, first, last);
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
          ptx::wgmma_m64k16<COLUMNS, Operand, A_TURNED, !B_TURNED>(d, left + j * (a_next >> 4),
                                                                   right + j * (b_next >> 4), step > first || j > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();  // the previous step is complete: its stage may be filled again
        if (step > first) release(before);
        before = stage.index;
      }
      ptx::wgmma_wait<0>(d);
      release(before);

      tiles.find(i, rank, row, column, entry);
      if constexpr (PARTS > 1) {
        parts::store(d, partial, tiles, row + warp_row, column, entry);
        continue;
      }
      const long long of_entry = (long long)entry * m * c_pitch;
      const sums::Matrix<Out> to{c0 + of_entry, c + of_entry, m, n, c_pitch, alpha, beta};
      if constexpr (SPLIT > 1) {
        float sum[PART][4];
        ptx::cluster_wait();  // the other blocks have started, and their mbarriers are initialised
        add_up(d, sum, slots, &landed, rank);
        sums::store<C_PAIRS>(sum, to, row + warp_row, column + rank * PART * 8);
      } else if constexpr (STORE == BY_TENSOR) {
        sums::store_tensor<Out>(d, *c_map, alpha, own, row + warp_row, column, entry);
      } else if constexpr (STORE == BY_ROWS) {
        lines::store(d, to, own, row + warp_row, column);
      } else {
        sums::store<C_PAIRS>(d, to, row + warp_row, column);
      }
    }
    if (STORE == BY_TENSOR && SPLIT == 1 && lane == 0) ptx::bulk_wait_read<0>();
  }
  if (CLUSTER > 1) {  // others may still write to this block
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ ptx::TensorMap a, const __grid_constant__ ptx::TensorMap b,
         const __grid_constant__ ptx::TensorMap c_map, const Out* c0, Out* c, int m, int n, int k, int c_pitch,
         int batch, float alpha, float beta, float* partial) {
  if constexpr (LOADERS == 0 && !SMALL)
    product(TensorLoads{a, b}, partial, &c_map, c0, c, m, n, k, c_pitch, batch, alpha, beta);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_by_hand(const lines::Bits* a, const lines::Bits* b, const Out* c0, Out* c, int m, int n, int k, int a_pitch,
                 int b_pitch, int c_pitch, int batch, float alpha, float beta) {
  if constexpr (LOADERS > 0) {
    auto lying = [=](const lines::Bits* from, int lines, int length, int pitch) {
      return Lines{from, lines, length, pitch, (((long long)batch * lines - 1) * pitch + length) / 8 * 8};
    };
    const LoadsByHand loads{A_TURNED ? lying(a, k, m, a_pitch) : lying(a, m, k, a_pitch),
                            B_TURNED ? lying(b, n, k, b_pitch) : lying(b, k, n, b_pitch)};
    product(loads, nullptr, nullptr, c0, c, m, n, k, c_pitch, batch, alpha, beta);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_small(const lines::Bits* a, const lines::Bits* b, const Out* c0, Out* c, int m, int n, int k, int a_pitch,
               int b_pitch, int c_pitch, float alpha, float beta) {
  extern __shared__ __align__(1024) char stages_then_sums[];
  if constexpr (SMALL) small::product(stages_then_sums, a, b, c0, c, m, n, k, a_pitch, b_pitch, c_pitch, alpha, beta);
}

extern "C" __global__ void __launch_bounds__(COPIERS)
    add_parts(const float* partial, const Out* c0, Out* c, int rows, int m, int n, int size, int pitch, int c_pitch,
              float alpha, float beta) {
  ptx::grid_wait();
  parts::add(partial, c0, c, rows, m, n, size, pitch, c_pitch, alpha, beta);
}
