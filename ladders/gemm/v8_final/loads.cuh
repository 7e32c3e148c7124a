// Part of kernel.cu: loads by the copy engine.

// One thread starts the copy engine.
struct TensorLoads {
  static constexpr int ARRIVALS = 1;  // at a stage: it expects the bytes
  const ptx::TensorMap &a, &b;

  __device__ __forceinline__ void prefetch() const {
    ptx::tensor_prefetch(a);
    ptx::tensor_prefetch(b);
  }
  __device__ __forceinline__ void run(char* memory, ptx::mbarrier* full, ptx::mbarrier* empty, const Tiles& tiles,
                                      int count, int rank, int first, int last) const {
    const int clusters = gridDim.x / CLUSTER;
    Stage stage;
    int row, column, entry;
    if (threadIdx.x % 32 != 0) return;
    ptx::grid_wait();
    for (int i = blockIdx.x / CLUSTER; i < count; i += clusters) {
      tiles.find(i, rank, row, column, entry);
#pragma unroll 1
      for (int at = first * TILE_K; at < last * TILE_K; at += TILE_K, stage.next()) {
        ptx::mbarrier* const ready = full + stage.index;
        char *const to_a = memory + stage.index * (A_BYTES + B_BYTES), *const to_b = to_a + A_BYTES;
        ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(ready, A_BYTES + B_BYTES);
#pragma unroll
        for (int j = 0; j < ROWS; j += 64)
          ptx::tensor_load(to_a + j / 64 * BOX_BYTES, a, A_TURNED ? row + j : at, A_TURNED ? at : row + j, entry,
                           ready);
#pragma unroll
        for (int j = 0; j < COLUMNS / SHARE; j += 64) {
          const int beside = j + (SHARE > 1 ? rank * (COLUMNS / SHARE) : 0);
          const int x = B_TURNED ? at : column + beside, y = B_TURNED ? column + beside : at;
          if constexpr (SHARE > 1)
            ptx::tensor_load_multicast(to_b + beside / 64 * BOX_BYTES, b, x, y, entry, ready, (1 << SHARE) - 1);
          else
            ptx::tensor_load(to_b + beside / 64 * BOX_BYTES, b, x, y, entry, ready);
        }
      }
    }
  }
};
