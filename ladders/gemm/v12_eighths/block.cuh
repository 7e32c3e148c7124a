// Part of kernel.cu: the work of a block.

__device__ __forceinline__ void product(const Eighths& eighths, const Maps& maps, const Out* c0, Out* c, int c_pitch,
                                        float alpha, float beta) {
  extern __shared__ __align__(1024) char memory[];  // stages; results of warps
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES];
  const int rank = SHARE > 1 ? ptx::cluster_rank() : 0;
  const Tiles tiles = eighths.tiles();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  if (threadIdx.x == CONSUMERS * 128) {
    maps.prefetch();
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
    if (threadIdx.x % 32 == 0) Loads{maps}.run(memory, full, empty, eighths, tiles, rank);
    __syncwarp();
  } else {
    Stage stage;
    int row, column, entry;
    const int lane = threadIdx.x % 32;
    auto release = [&](int index) {
      if constexpr (SHARE > 1) {
        if (lane < SHARE) ptx::mbarrier_arrive_cluster(empty + index, lane);
      } else {
        if (lane == 0) ptx::mbarrier_arrive(empty + index);
      }
    };
    char* const own = memory + STAGES * (A_BYTES + B_BYTES) + threadIdx.x / 32 * (BUFFERS * 2048);
    for (int i = blockIdx.x / SHARE; i < tiles.rows * tiles.columns; i += gridDim.x / SHARE) {
      tiles.find(i, rank, row, column, entry);
      const Unit unit = eighths.unit(row, warpgroup);
      const int end = eighths.end(row), first = (eighths.start(row) - unit.shift) * 128;  // where b begins in a stage
      float d[GROUPS][4];
      int before = 0;  // the stage of the previous step
      auto step = [&](int at, auto multiply) {
        const char *const a_tile = memory + stage.index * (A_BYTES + B_BYTES), *const b_tile = a_tile + A_BYTES;
        const auto left = ptx::matrix_descriptor_128b(a_tile + warpgroup * A_BOX, A_BOX, 1024);
        const auto right = ptx::matrix_descriptor_128b_lines(b_tile, B_BOX, 1024) + (first >> 4);
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

      const long long of_eighth = (long long)unit.eighth * c_pitch;
      const int rows = (eighths.m - unit.eighth + 7) / 8, c_row = unit.row + threadIdx.x % 128 / 32 * 16;
      const sums::Matrix<Out> to{c0 + of_eighth, c + of_eighth, rows, eighths.n, 8 * c_pitch, alpha, beta};
      if constexpr (BY_PIECES)
        store_pieces(d, unit.eighth < eighths.m % 8 ? maps.c_more : maps.c_less, to, own,
                     unit.eighth * c_pitch + column, c_row, column);
      else
        sums::store<C_PAIRS>(d, to, c_row, column);
    }
    if (BY_PIECES && lane == 0) ptx::bulk_wait_read<0>();
  }
  if (SHARE > 1) {  // others may still write to this block
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}
