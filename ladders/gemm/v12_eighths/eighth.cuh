// Part of kernel.cu: the order of tiles, and their rows.

// 64 rows of an eighth: rows e + 8 q, e + 8 (q + 1), ... of a and c. All of them start at the same place in a piece of
// 16 bytes: `shift` elements after a multiple of 16 bytes.
struct Unit {
  int eighth, row, shift;  // e, q
};

struct Eighths {
  int m, n, k;

  __device__ __forceinline__ Tiles tiles() const {
    const int of_eighth = ((m + 7) / 8 + HIGH - 1) / HIGH;
    return {8 * of_eighth * HIGH / (SHARE * ROWS), (n + COLUMNS - 1) / COLUMNS};
  }
  // A warpgroup's rows of a tile, which would start at `row` if eighths followed each other, HIGH rows of each.
  __device__ __forceinline__ Unit unit(int row, int warpgroup) const {
    const int at = row + warpgroup * 64, part = at / HIGH, eighth = part % 8;
    return {eighth, part / 8 * HIGH + at % HIGH, eighth * (k % 8) % 8};
  }
  // The index of the last row within an eighth.
  __device__ __forceinline__ int last(int eighth) const { return (m - 1 - eighth) / 8; }
  // The number of rows by which the first box of b begins before b.
  __device__ __forceinline__ int start(int row) const { return ALIKE ? unit(row, 0).shift : 8; }
  // The number of terms that are multiplied: k, and elements of another row of a before them.
  __device__ __forceinline__ int end(int row) const { return k + (ALIKE ? unit(row, 0).shift : 7); }
};
