// Part of kernel.cu: the two kinds of tiles, and their order.

// A tile of c in a block. Each of two warpgroups has half of its rows: 128 in a tall tile, 64 in a flat one.
template <int of_rows, int of_columns>
struct Kind {
  static constexpr int ROWS = of_rows, COLUMNS = of_columns;
  static constexpr int A_BYTES = ROWS * TILE_K * 2, B_BYTES = COLUMNS * TILE_K * 2;
  static constexpr bool TALL = ROWS == 256;
  static constexpr int GROUPS = ROWS / 128 * COLUMNS / 8;  // of 64 rows and 8 columns, in a warpgroup
};
using Tall = Kind<256, 192>;
using Flat = Kind<128, 256>;

// A cluster has a pair of tiles: two tall ones beside each other, which share a, or two flat ones below each other,
// which share b. Both pairs have 256 rows of c. Flat tiles cover the last columns.
struct Tiles {
  int rows, tall_columns, flat_columns, batch;  // rows and columns of such pairs

  __device__ __forceinline__ int tall() const { return rows * tall_columns * batch; }
  __device__ __forceinline__ int count() const { return tall() + rows * flat_columns * batch; }
  // All tall tiles come first. BAND columns are one band; in it, tiles follow each other row by row, and in every
  // second band from the last row to the first.
  __device__ __forceinline__ void find(int i, int rank, int& row, int& column, int& entry) const {
    const bool is_tall = i < tall();
    if (!is_tall) i -= tall();
    const int columns = is_tall ? tall_columns : flat_columns;
    entry = i / (rows * columns);
    i -= entry * rows * columns;
    const int band = i / (BAND * rows), first = band * BAND, width = min(BAND, columns - first);
    const int in_band = i - first * rows, down = in_band / width;
    column = first + in_band % width;
    row = band % 2 ? rows - 1 - down : down;
    row = is_tall ? row * Tall::ROWS : (row * 2 + rank) * Flat::ROWS;
    column = is_tall ? (column * 2 + rank) * Tall::COLUMNS : tall_columns * 2 * Tall::COLUMNS + column * Flat::COLUMNS;
  }
};
