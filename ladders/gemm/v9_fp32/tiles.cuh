// Part of kernel.cu: the order of tiles.

struct Tiles {
  int rows, wide, narrow, batch;  // rows of tiles in an entry of the batch, columns of each width
  __device__ __forceinline__ int count() const { return rows * (wide + narrow) * batch; }
  // All wide tiles come first. BAND rows of tiles are one band; in it, tiles follow each other column by column.
  __device__ __forceinline__ bool find(int i, int& row, int& column, int& entry) const {
    const int all_wide = rows * wide * batch;
    const bool is_wide = i < all_wide;
    const int columns = is_wide ? wide : narrow;
    if (!is_wide) i -= all_wide;
    entry = i / (rows * columns);
    i -= entry * rows * columns;
    const int first = i / (BAND * columns) * BAND, height = min(BAND, rows - first), in_band = i - first * columns;
    row = (first + in_band % height) * ROWS;
    column = is_wide ? in_band / height * WIDE : wide * WIDE + in_band / height * NARROW;
    return is_wide;
  }
};
