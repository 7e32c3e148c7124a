// Part of kernel.cu: which rows a tile has.

// Rows of an eighth: rows e + 8 q, e + 8 (q + 1), ... of a and c. All of them start `shift` elements behind a multiple
// of 16 bytes.
struct Unit {
  int eighth, row, shift;  // e, q
};

// 256 rows of each eighth follow each other, so a pair of tiles has rows of one eighth.
struct Eighths {
  int m, k;

  // The row that would be row `row` if rows were in this order.
  __device__ __forceinline__ Unit unit(int row) const {
    const int part = row / 256, eighth = part % 8;
    return {eighth, part / 8 * 256 + row % 256, eighth * (k % 8) % 8};
  }
  __device__ __forceinline__ int rows(int eighth) const { return (m + 7 - eighth) / 8; }
  // Of k, with those that other rows of a have in these places.
  __device__ __forceinline__ int steps(int row) const { return (k + unit(row).shift + TILE_K - 1) / TILE_K; }
};
