// Part of kernel.cu: loads by the copy engine.

// One thread starts the copy engine. It sees eight rows of a as one row, which starts at a multiple of 16 bytes.
struct Loads {
  const ptx::TensorMap &a_more, &a_less, &b;  // a: of eighths that have one row more than the others, and of those

  __device__ __forceinline__ void prefetch() const {
    ptx::tensor_prefetch(a_more);
    ptx::tensor_prefetch(a_less);
    ptx::tensor_prefetch(b);
  }
  __device__ __forceinline__ void run(char* memory, ptx::mbarrier* full, ptx::mbarrier* empty, const Eighths& eighths,
                                      const Tiles& tiles, int rank) const {
    Stage stage;
    int row, column;
    ptx::grid_wait();
    for (int i = blockIdx.x / SHARE; i < tiles.rows * tiles.columns; i += gridDim.x / SHARE) {
      const Eighth eighth = eighths.find(tiles, i, rank, row, column);
      const ptx::TensorMap& a = eighth.number < eighths.m % 8 ? a_more : a_less;
      const int x0 = eighth.number * eighths.k - eighth.shift, end = eighth.shift + eighths.k;
#pragma unroll 1
      for (int at = 0; at < end; at += TILE_K, stage.next()) {
        ptx::mbarrier* const ready = full + stage.index;
        char *const to_a = memory + stage.index * (A_BYTES + B_BYTES), *const to_b = to_a + A_BYTES;
        ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(ready, A_BYTES + B_BYTES);
#pragma unroll
        for (int j = 0; j < ROWS; j += 64) ptx::tensor_load(to_a + j / 64 * BOX_BYTES, a, x0 + at, row + j, ready);
#pragma unroll
        for (int j = 0; j < COLUMNS / SHARE; j += 64) {
          const int beside = j + (SHARE > 1 ? rank * (COLUMNS / SHARE) : 0), y = at - eighth.shift;
          if constexpr (SHARE > 1)
            ptx::tensor_load_multicast(to_b + beside / 64 * BOX_BYTES, b, column + beside, y, ready,
                                       (1 << SHARE) - 1);
          else
            ptx::tensor_load(to_b + beside / 64 * BOX_BYTES, b, column + beside, y, ready);
        }
      }
    }
  }
};
