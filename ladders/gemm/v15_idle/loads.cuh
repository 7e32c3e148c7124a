// Part of kernel.cu: one thread of a block starts the copy engine.

struct Loads {
  // The copy engine sees PERIOD rows of a as one row. a_more is for classes that have one row more than others.
  const ptx::TensorMap &a_more, &a_less, &b;
  char* memory;
  ptx::mbarrier *full, *empty;
  const Rows& order;
  int n;

  // Loads the steps of a tile: the last one, and then the others from the first one on, or in reverse order if `back`.
  template <class Tile>
  __device__ __forceinline__ void tile(Stage& stage, bool back, int rank, int row, int column) const {
    const int steps = order.steps(row);
    const Unit unit = order.unit(row);
    const ptx::TensorMap& a = unit.of < order.m % PERIOD ? a_more : a_less;
    // A box outside the operand is slow to load. Boxes of rows and columns that are not stored start inside.
    const int y = min(unit.row + (Tile::TALL ? rank * 128 : 0), order.count(unit.of) - 1);
    const int last = (n - 1) / 64 * 64;
#pragma unroll 1
    for (int step = 0; step < steps; step++, stage.next()) {
      const int at = (back || step == 0 ? steps - 1 - step : step - 1) * TILE_K;
      ptx::mbarrier* const ready = full + stage.index;
      char *const to_a = memory + stage.index * STAGE_BYTES, *const to_b = to_a + Tile::A_BYTES;
      ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(ready, Tile::A_BYTES + Tile::B_BYTES);
      const int x = unit.of * order.k - unit.shift + at;
      if constexpr (Tile::TALL)  // half of the rows, for both blocks
        ptx::tensor_load_multicast(to_a + rank * (2 * BOX_BYTES), a, x, y, ready, 3);
      else
        ptx::tensor_load(to_a, a, x, y, ready);
#pragma unroll
      for (int i = 0; i < Tile::COLUMNS / (Tile::TALL ? 1 : 2); i += 64) {  // of a flat tile, half of the columns
        const int beside = i + (Tile::TALL ? 0 : rank * 128), of_b = min(column + beside, last);
        char* const to = to_b + beside / 64 * BOX_BYTES;
        if constexpr (Tile::TALL)
          ptx::tensor_load(to, b, of_b, at - unit.shift, ready);
        else
          ptx::tensor_load_multicast(to, b, of_b, at - unit.shift, ready, 3);
      }
    }
  }
};
