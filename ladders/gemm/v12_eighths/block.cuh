// Part of kernel.cu: the work of a block.

__device__ __forceinline__ void product(const Eighths& eighths, const Loads& loads, const ptx::TensorMap* c_map,
                                        const Out* c0, Out* c, int c_pitch, float alpha, float beta) {
  extern __shared__ __align__(1024) char memory[];  // stages; results of warps
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES];
  const int rank = SHARE > 1 ? ptx::cluster_rank() : 0;
  const Tiles tiles = eighths.tiles();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  if (threadIdx.x == CONSUMERS * 128) {
    loads.prefetch();
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, CONSUMERS * 4 * SHARE);  // every warp that multiplies
    }
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();
  }
  __syncthreads();
  if (SHARE > 1) {
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();  // others fill this block's stages immediately
  }
  ptx::grid_launch_dependents();

  if (warpgroup >= CONSUMERS) {
    if (threadIdx.x % 32 == 0) loads.run(memory, full, empty, eighths, tiles, rank);
    __syncwarp();
  } else {
    Stage stage;
    int row, column;
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
    auto release = [&](int index) {
      if constexpr (SHARE > 1) {
        if (lane < SHARE) ptx::mbarrier_arrive_cluster(empty + index, lane);
      } else {
        if (lane == 0) ptx::mbarrier_arrive(empty + index);
      }
    };
    char* const own = memory + STAGES * (A_BYTES + B_BYTES) + threadIdx.x / 32 * STAGED_BYTES;
    for (int i = blockIdx.x / SHARE; i < tiles.rows * tiles.columns; i += gridDim.x / SHARE) {
      const Eighth eighth = eighths.find(tiles, i, rank, row, column);
      const int end = eighth.shift + eighths.k;
      float d[GROUPS][4];
      int before = 0;  // the stage of the previous step
auto step = [&](int at, auto multiply) {
        const char *const a_tile = memory + stage.index * (A_BYTES + B_BYTES), *const b_tile = a_tile + A_BYTES;
        const auto left = ptx::matrix_descriptor_128b(a_tile + warpgroup * BOX_BYTES, BOX_BYTES, 1024);
        const auto right = ptx::matrix_descriptor_128b(b_tile, BOX_BYTES, 1024);
        ptx::mbarrier_wait(full + stage.index, stage.parity);
        ptx::wgmma_fence();
        multiply([&](int j) {  // 16 of k
          ptx::wgmma_m64k16<COLUMNS, Operand, false, true>(d, left + j * (32 >> 4), right + j * (2048 >> 4),
                                                           at > 0 || j > 0);
        });
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();  // the previous step is complete: its stage may be filled again
        if (at > 0) release(before);
        before = stage.index;
        stage.next();
      };
      int at = 0;
#pragma unroll 1
      for (; at + TILE_K <= end; at += TILE_K)
        step(at, [](auto product) {
#pragma unroll
          for (int j = 0; j < TILE_K / 16; j++) product(j);
        });
      if (at < end)
        step(at, [&](auto product) {
#pragma unroll 1
          for (int j = 0; at + 16 * j < end; j++) product(j);
        });
      ptx::wgmma_wait<0>(d);
      release(before);

      const long long of_eighth = (long long)eighth.number * c_pitch;
      const sums::Matrix<Out> to{c0 + of_eighth, c + of_eighth, (eighths.m - eighth.number + 7) / 8, eighths.n, 8 * c_pitch,
                                 alpha, beta};
      if constexpr (STORE == BY_TENSOR)
        sums::store_tensor<Out>(d, *c_map, alpha, own, row + warp_row, column, eighth.number);
      else if constexpr (STORE == BY_ROWS)
        store_pieces(d, to, own, row + warp_row, column);
      else
        sums::store<C_PAIRS>(d, to, row + warp_row, column);
    }
    if (STORE == BY_TENSOR && lane == 0) ptx::bulk_wait_read<0>();
  }
  if (SHARE > 1) {  // others may still write to this block
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}
