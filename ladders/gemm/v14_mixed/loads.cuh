// Part of kernel.cu: one warp of a block starts the copy engine.

struct Loads {
  const ptx::TensorMap &a, &b;
  char* memory;
  ptx::mbarrier *full, *empty;

  // Loads the steps of a tile, from the first to the last, or in reverse order if `back`.
  template <class Tile>
  __device__ __forceinline__ void tile(Stage& stage, int steps, bool back, int rank, int row, int column,
                                       int entry) const {
#pragma unroll 1
    for (int step = 0; step < steps; step++, stage.next()) {
      const int at = (back ? steps - 1 - step : step) * TILE_K;
      ptx::mbarrier* const ready = full + stage.index;
      char *const to_a = memory + stage.index * STAGE_BYTES, *const to_b = to_a + Tile::A_BYTES;
      ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
      if (ptx::elect()) {
        ptx::mbarrier_arrive_expect_tx(ready, Tile::A_BYTES + Tile::B_BYTES);
#pragma unroll
        for (int i = 0; i < 128; i += A_BOX) {  // of a tall tile, half of the rows, for both blocks
          const int below = i + (Tile::TALL ? rank * 128 : 0);
          const int x = A_TURNED ? row + below : at, y = A_TURNED ? at : row + below;
          char* const to = to_a + below / 64 * BOX_BYTES;
          if constexpr (Tile::TALL)
            ptx::tensor_load_multicast(to, a, x, y, entry, ready, 3);
          else
            ptx::tensor_load(to, a, x, y, entry, ready);
        }
#pragma unroll
        for (int i = 0; i < Tile::COLUMNS / (Tile::TALL ? 1 : 2); i += 64) {  // of a flat tile, half of the columns
          const int beside = i + (Tile::TALL ? 0 : rank * 128);
          const int x = B_TURNED ? at : column + beside, y = B_TURNED ? column + beside : at;
          char* const to = to_b + beside / 64 * BOX_BYTES;
          if constexpr (Tile::TALL)
            ptx::tensor_load(to, b, x, y, entry, ready);
          else
            ptx::tensor_load_multicast(to, b, x, y, entry, ready, 3);
        }
      }
    }
  }
};
