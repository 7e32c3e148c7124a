// Part of kernel.cu: the blocks of a cluster, and the order of tiles.

// A bit for each of `count` blocks of a cluster, `step` ranks from one to the next.
constexpr int every(int count, int step) { return count == 0 ? 0 : every(count - 1, step) << step | 1; }
constexpr int B_MASK = every(SHARE_B, 1),
              A_MASK = every(SHARE_A, SHARE_B);  // blocks below each other; beside each other

// Tiles of a cluster, which has SHARE_B blocks below each other and SHARE_A blocks beside each other. BAND rows of
// clusters are one band; in it, clusters follow each other column by column.
struct Places {
  int rows, columns;  // of clusters, in an entry
  __device__ __forceinline__ void find(int i, int rank, int& row, int& column, int& entry) const {
    entry = i / (rows * columns);
    i -= entry * rows * columns;
    const int first = i / (BAND * columns) * BAND, height = min(BAND, rows - first), in_band = i - first * columns;
    row = ((first + in_band % height) * SHARE_B + rank % SHARE_B) * ROWS;
    column = (in_band / height * SHARE_A + rank / SHARE_B) * COLUMNS;
  }
};
