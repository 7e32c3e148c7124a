// linear/v1_tiles: the product of gemm/v8_final, in tiles that fit a transformer; all other operations are applied to
// its sums.
//
// Idea      Tiles are 192 x 192. The 32 x 197 tokens of ViT-B/16 are 33 tiles high, and 768, 2304 and 3072 columns are
//           4, 12 and 16 tiles wide, so each product is 1, 3 or 4 full rounds on 132 multiprocessors. The operations
//           around the product are applied to sums in registers (epilogue.cuh). This includes the layer norm before it,
//           as a factor of each line. A norm therefore needs no separate kernel, and its result is never written.
// Layout    x (m,k), w (n,k), residual and y as in the problem. Shared memory: STAGES of 64 k of ROWS lines of x and of
//           COLUMNS lines of w, in rows of 128 bytes with 128-byte swizzle; 2 KB per warp for its results.
// Mapping   a block on each multiprocessor processes tile after tile, down a column of tiles; ROWS / 64 warpgroups
//           multiply; one more copies, and gives most of its registers to the others. With SHARE = 2, two adjacent
//           blocks share lines of x: each loads half of them for both (multicast).
// Roofline  32 x 197 tokens, 768 -> 3072: 30 GFLOP, 0.032 ms at 945 TFLOP/s, 0.042 ms at 700; 53 MB, 0.012 ms at 4.3
//           TB/s, but most of them stay in L2. A step of 192 x 192 x 64 is 1,152 clocks of tensor cores and 36 KB from
//           L2.
// Gain      over linear/v0_naive: a factor of 10 and more, by the tensor cores. Over gemm/v8_final: 1.7 for 768 columns
//           and 1.1 for 3072. For 768 columns, gemm/v8_final has 75 pairs of tiles of 128 x 256, which need two rounds
//           on an H200, because it has room for 66 pairs. In addition, there are no kernels between products.
// Limits    sm_90a; k, and n if y is in halves, are multiples of 8, and so are pitches.
// Hazards   as gemm/v8_final. A stage is free when the warps of both blocks have read it, because each of the two
//           blocks fills stages of both. Nothing is read before grid_wait(): the copying thread waits, and the others
//           wait for its copies. Each warp has its own memory for its results.
// Source    gemm/v8_final; J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization", arXiv:1607.06450.
#include "epilogue.cuh"

constexpr int CONSUMERS = ROWS / 64, X_BYTES = ROWS * 128, W_BYTES = COLUMNS * 128, GROUPS = COLUMNS / 8;
static_assert(THREADS == CONSUMERS * 128 + 128, "consumers, then the producer, which needs one thread");

struct Stage {  // a stage of the ring, and the parity of its phase
  int index = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++index == STAGES) index = 0, parity ^= 1;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    linear(const __grid_constant__ ptx::TensorMap x, const __grid_constant__ ptx::TensorMap w,
           const __grid_constant__ ptx::TensorMap y_map, const float* bias, const float2* x_moments,
           const half* residual, Out* y, float2* y_moments, int m, int n, int k, long long r_pitch, int r_lines) {
  extern __shared__ __align__(1024) char memory[];  // stages, then the results of warps
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES];
  const int rank = SHARE > 1 ? ptx::cluster_rank() : 0, clusters = gridDim.x / SHARE;
  const int rows = (m + ROWS - 1) / ROWS, count = rows * ((n + SHARE * COLUMNS - 1) / (SHARE * COLUMNS));
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  if (threadIdx.x == CONSUMERS * 128) {
    ptx::tensor_prefetch(x);
    ptx::tensor_prefetch(w);
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, CONSUMERS * 4 * SHARE);  // every warp that multiplies
    }
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();
  }
  __syncthreads();  // the mbarriers are initialised
  if (SHARE > 1) {  // for the other block, too
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
  ptx::grid_launch_dependents();

  Stage stage;
  if (warpgroup == CONSUMERS) {
    if (CONSUMERS == 3) ptx::setmaxnreg_dec<32>();  // of 128: the others need them for 96 sums each
    if (threadIdx.x == CONSUMERS * 128) {
      ptx::grid_wait();
      for (int i = blockIdx.x / SHARE; i < count; i += clusters) {
        const int row = i % rows * ROWS, column = (i / rows * SHARE + rank) * COLUMNS;
#pragma unroll 1
        for (int at = 0; at < k; at += 64, stage.next()) {
          ptx::mbarrier* const ready = full + stage.index;
          char *const to_x = memory + stage.index * (X_BYTES + W_BYTES), *const to_w = to_x + X_BYTES;
          ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
          ptx::mbarrier_arrive_expect_tx(ready, X_BYTES + W_BYTES);
          if constexpr (SHARE > 1)
            ptx::tensor_load_multicast(to_x + rank * (X_BYTES / SHARE), x, at, row + rank * (ROWS / SHARE), ready, 3);
          else
            ptx::tensor_load(to_x, x, at, row, ready);
          ptx::tensor_load(to_w, w, at, column, ready);
        }
      }
    }
    __syncwarp();
  } else {
    if (CONSUMERS == 3) ptx::setmaxnreg_inc<160>();
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
    auto release = [&](int index) {
      if constexpr (SHARE > 1) {
        if (lane < SHARE) ptx::mbarrier_arrive_cluster(empty + index, lane);
      } else {
        if (lane == 0) ptx::mbarrier_arrive(empty + index);
      }
    };
    char* const own = memory + STAGES * (X_BYTES + W_BYTES) + threadIdx.x / 32 * 2048;
    for (int i = blockIdx.x / SHARE; i < count; i += clusters) {
      const int row = i % rows * ROWS + warp_row, column = (i / rows * SHARE + rank) * COLUMNS;
      float d[GROUPS][4];
      int before = 0;  // the stage of the previous step
#pragma unroll 1
      for (int at = 0; at < k; at += 64, stage.next()) {
        const char *const x_tile = memory + stage.index * (X_BYTES + W_BYTES), *const w_tile = x_tile + X_BYTES;
        const auto left = ptx::matrix_descriptor_128b(x_tile + warpgroup * 8192, 0, 1024);
        const auto right = ptx::matrix_descriptor_128b(w_tile, 0, 1024);
        ptx::mbarrier_wait(full + stage.index, stage.parity);
        ptx::wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; j++)  // 16 of k are 32 bytes
          ptx::wgmma_m64k16<COLUMNS, ptx::Half, false, false>(d, left + 2 * j, right + 2 * j, at > 0 || j > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();  // the previous step is complete: its stage may be filled again
        if (at > 0) release(before);
        before = stage.index;
      }
      // Data that do not depend on the sums are fetched while the last products run.
      const Epilogue<GROUPS> epilogue{bias, residual, y, y_moments, m, n, r_pitch, r_lines, row, column};
      const Factors factors = NORM ? find_factors(x_moments, row, m, k) : Factors{};
      ptx::wgmma_wait<0>(d);
      release(before);
      epilogue(d, factors, y_map, own);
    }
    if (OUT_HALF && lane == 0) ptx::bulk_wait_read<0>();  // before the block exits and its memory is reused
  }
  if (SHARE > 1) {  // the other block may still write to this one, or arrive here
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}
