// Part of kernel.cu: loads by the copy engine.

// What the copy engine sees: eight rows of a or c as one row, which starts at a multiple of 16 bytes.
struct Maps {
  const ptx::TensorMap &a_more, &a_less, &b, &c_more,
      &c_less;  // _more: of eighths that have one row more than others

  __device__ __forceinline__ void prefetch() const {
    ptx::tensor_prefetch(a_more);
    ptx::tensor_prefetch(a_less);
    ptx::tensor_prefetch(b);
  }
};

// One thread starts the copy engine.
struct Loads {
  const Maps& maps;

  __device__ __forceinline__ void run(char* memory, ptx::mbarrier* full, ptx::mbarrier* empty, const Eighths& eighths,
                                      const Tiles& tiles, int rank) const {
    Stage stage;
    int row, column, entry;
    ptx::grid_wait();
    for (int i = blockIdx.x / SHARE; i < tiles.rows * tiles.columns; i += gridDim.x / SHARE) {
      tiles.find(i, rank, row, column, entry);
      // A box outside the operand is slow to load. Boxes of rows and columns that are not stored start inside.
      const int boxes = min((eighths.n - column + 63) / 64, COLUMNS / 64);
      const int start = eighths.start(row), end = eighths.end(row);
#pragma unroll 1
      for (int at = 0; at < end; at += TILE_K, stage.next()) {
        ptx::mbarrier* const ready = full + stage.index;
        char *const to_a = memory + stage.index * (A_BYTES + B_BYTES), *const to_b = to_a + A_BYTES;
        ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(ready, A_BYTES + B_BYTES);
#pragma unroll
        for (int j = 0; j < CONSUMERS; j++) {
          const Unit unit = eighths.unit(row, j);
          const ptx::TensorMap& a = unit.eighth < eighths.m % 8 ? maps.a_more : maps.a_less;
          const int x = unit.eighth * eighths.k - unit.shift + at, y = min(unit.row, eighths.last(unit.eighth));
          ptx::tensor_load(to_a + j * A_BOX, a, x, y, ready);
        }
#pragma unroll
        for (int j = 0; j < COLUMNS / 64 / SHARE; j++) {
          const int box = j + rank * (COLUMNS / 64 / SHARE), x = column + min(box, boxes - 1) * 64, y = at - start;
          if constexpr (SHARE > 1)
            ptx::tensor_load_multicast(to_b + box * B_BOX, maps.b, x, y, ready, (1 << SHARE) - 1);
          else
            ptx::tensor_load(to_b + box * B_BOX, maps.b, x, y, ready);
        }
      }
    }
  }
};
