// Part of kernel.cu: the order of tiles.

struct Tiles {
  int rows, wide, narrow;  // rows of tiles, columns of each width
  __device__ __forceinline__ int count() const { return rows * (wide + narrow); }
  // All wide tiles come first. BAND columns of tiles are one band; in it, tiles follow each other row by row.
  __device__ __forceinline__ bool find(int i, int& row, int& column) const {
    const bool is_wide = i < rows * wide;
    if (!is_wide) i -= rows * wide;
    const int first = i / (rows * BAND) * BAND, width = min(BAND, (is_wide ? wide : narrow) - first);
    i -= rows * first;
    row = i / width * ROWS;
    column = is_wide ? (first + i % width) * WIDE : wide * WIDE + (first + i % width) * NARROW;
    return is_wide;
  }
};
