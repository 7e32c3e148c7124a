// linear/v2_ahead: linear/v1_tiles with weights that are loaded before the previous kernel has ended.
//
// Idea      In a network, a layer needs the results of the previous one, but its weights do not change. One thread
//           starts the loads of x, and another one those of w. The thread for w does not wait: when the previous kernel
//           ends, w of the first STAGES steps has arrived or is on its way. The thread for x waits, and then has only
//           half of the loads to start. This matters if a layer has few lines, because its kernel takes only a few
//           microseconds. Layers with many lines, for which two blocks share lines of x, are calls of linear/v1_tiles.
// Layout    as linear/v1_tiles.
// Mapping   as linear/v1_tiles; of the warpgroup that copies, one thread starts the loads of x and one those of w.
// Roofline  197 tokens, 768 -> 3072: 0.9 GFLOP, 0.001 ms at 945 TFLOP/s; 6 MB of weights and results, 0.0015 ms at 4.3
//           TB/s. 8 stages of 64 lines of w are 64 KB: 1,000 clocks at 64 bytes per clock, 0.0005 ms.
// Gain      over linear/v1_tiles in a network: 0.5 us for each of the 49 layers of ViT-B/16, of 382 us for one image on
//           an H200.
// Limits    as linear/v1_tiles.
// Hazards   as linear/v1_tiles, except that w is read before grid_wait(). It is a weight: no launch of a plan that
//           calls this kernel may write it, and whoever wrote it must have ended when the plan starts. Two threads
//           expect bytes at the mbarrier of a stage, so it counts two arrivals. The threads that multiply wait for x,
//           and so for grid_wait(), before they read or write anything else.
// Source    linear/v1_tiles; PTX ISA, "griddepcontrol"; mini_dnn/implicit.cuh.
#include "../v1_tiles/epilogue.cuh"

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
  const int rows = (m + ROWS - 1) / ROWS, count = rows * ((n + COLUMNS - 1) / COLUMNS);
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  if (threadIdx.x == CONSUMERS * 128) {
    ptx::tensor_prefetch(x);
    ptx::tensor_prefetch(w);
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 2);               // of x, and of w
      ptx::mbarrier_init(empty + i, CONSUMERS * 4);  // every warp that multiplies
    }
    ptx::fence_proxy_async();
  }
  __syncthreads();  // the mbarriers are initialised
  ptx::grid_launch_dependents();

  Stage stage;
  if (warpgroup == CONSUMERS) {
    if (CONSUMERS == 3) ptx::setmaxnreg_dec<32>();  // of 128: the others need them for 96 sums each
    const bool of_x = threadIdx.x == CONSUMERS * 128, of_w = threadIdx.x == CONSUMERS * 128 + 32;
    if (of_x) ptx::grid_wait();
    for (int i = blockIdx.x; (of_x || of_w) && i < count; i += gridDim.x) {
      const int row = i % rows * ROWS, column = i / rows * COLUMNS;
#pragma unroll 1
      for (int at = 0; at < k; at += 64, stage.next()) {
        ptx::mbarrier* const ready = full + stage.index;
        char *const to_x = memory + stage.index * (X_BYTES + W_BYTES), *const to_w = to_x + X_BYTES;
        ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(ready, of_x ? X_BYTES : W_BYTES);
        if (of_x)
          ptx::tensor_load(to_x, x, at, row, ready);
        else
          ptx::tensor_load(to_w, w, at, column, ready);
      }
    }
    __syncwarp();
  } else {
    if (CONSUMERS == 3) ptx::setmaxnreg_inc<160>();
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
    auto release = [&](int index) {
      if (lane == 0) ptx::mbarrier_arrive(empty + index);
    };
    char* const own = memory + STAGES * (X_BYTES + W_BYTES) + threadIdx.x / 32 * 2048;
    for (int i = blockIdx.x; i < count; i += gridDim.x) {
      const int row = i % rows * ROWS + warp_row, column = i / rows * COLUMNS;
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
}
