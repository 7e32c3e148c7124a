// Part of kernel.cu: the work of a block.

template <class Loads>
__device__ __forceinline__ void product(const Loads& loads, const ptx::TensorMap* c_map, const Out* c0, Out* c, int m,
                                        int n, int k, int c_pitch, int batch, float alpha, float beta) {
  extern __shared__ __align__(1024) char memory[];  // stages; results of warps; sums of other blocks
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES], landed;
  const int rank = CLUSTER > 1 ? ptx::cluster_rank() : 0, clusters = gridDim.x / CLUSTER;
  const Tiles tiles{(m + SHARE * ROWS - 1) / (SHARE * ROWS), (n + COLUMNS - 1) / COLUMNS};
  const int count = tiles.rows * tiles.columns * batch, steps = (k + TILE_K - 1) / TILE_K;
  const int first = SPLIT > 1 ? steps * rank / SPLIT : 0, last = SPLIT > 1 ? steps * (rank + 1) / SPLIT : steps;
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
    loads.run(memory, full, empty, tiles, count, rank, first, last);
    __syncwarp();
    if (SPLIT > 1) ptx::cluster_wait();
  } else {
    Stage stage;
    int row, column, entry;
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
