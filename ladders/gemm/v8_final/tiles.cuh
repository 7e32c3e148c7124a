// Part of kernel.cu: the order of tiles.

struct Tiles {
  int rows, columns;  // of tiles of a cluster, in an entry of the batch
  // BAND rows are one band; in it, tiles follow each other column by column.
  __device__ __forceinline__ void find(int i, int rank, int& row, int& column, int& entry) const {
    entry = i / (rows * columns);
    i -= entry * rows * columns;
    const int first = i / (BAND * columns) * BAND, height = min(BAND, rows - first), in_band = i - first * columns;
    row = ((first + in_band % height) * SHARE + rank % SHARE) * ROWS;
    column = in_band / height * COLUMNS;
  }
};
