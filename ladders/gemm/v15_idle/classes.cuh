// Part of kernel.cu: which rows a tile has.

// Rows of a class: rows e + PERIOD q, e + PERIOD (q + 1), ... of a and c. All of them start `shift` elements after a
// multiple of PERIOD elements.
struct Unit {
  int of, row, shift;  // e, q
};

// 256 rows of each class follow each other, so a pair of tiles has rows of one class.
struct Rows {
  int m, k;

  // The row that would be row `row` if rows were in this order.
  __device__ __forceinline__ Unit unit(int row) const {
    const int part = row / 256, of = part % PERIOD;
    return {of, part / PERIOD * 256 + row % 256, of * (k % PERIOD) % PERIOD};
  }
  __device__ __forceinline__ int count(int of) const { return (m + PERIOD - 1 - of) / PERIOD; }
  // The number of steps: k terms, and the `shift` elements of another row before them. The step with the last terms
  // comes first, and may have fewer terms: first() times 16.
  __device__ __forceinline__ int steps(int row) const { return (k + unit(row).shift + TILE_K - 1) / TILE_K; }
  __device__ __forceinline__ int first(int row) const { return (k + unit(row).shift - 1) % TILE_K / 16 + 1; }
};

// As gemm/v14_mixed, but the first band of tall tiles has FIRST columns. Each of the next ones has twice as many, and
// at most BAND, so that copies of b need not be far ahead.
struct Places {
  int rows, tall_columns, flat_columns, first;  // rows and columns of pairs of tiles; columns of the first band

  __device__ __forceinline__ int tall() const { return rows * tall_columns; }
  __device__ __forceinline__ int count() const { return tall() + rows * flat_columns; }
  __device__ __forceinline__ void find(int i, int rank, int& row, int& column) const {
    const bool is_tall = i < tall();
    if (!is_tall) i -= tall();
    int start = 0, width = is_tall ? first : BAND, band = 0;  // first column and width of the band
    for (; i >= width * rows; band++) {
      i -= width * rows;
      start += width;
      width = min(2 * width, BAND);
    }
    width = min(width, (is_tall ? tall_columns : flat_columns) - start);
    const int down = i / width;
    column = start + i % width;
    row = band % 2 ? rows - 1 - down : down;
    row = is_tall ? row * Tall::ROWS : (row * 2 + rank) * Flat::ROWS;
    column = is_tall ? (column * 2 + rank) * Tall::COLUMNS : tall_columns * 2 * Tall::COLUMNS + column * Flat::COLUMNS;
  }
};
