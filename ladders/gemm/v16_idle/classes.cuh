// Part of kernel.cu: which rows a tile has.

// Rows of a class: rows e + PERIOD q, e + PERIOD (q + 1), ... of a and c. All of them start `shift` elements behind a
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
  // Of k, with those that other rows of a have in these places. The first step is the one that may have fewer terms,
  // whose place is last: how many times 16 it has.
  __device__ __forceinline__ int steps(int row) const { return (k + unit(row).shift + TILE_K - 1) / TILE_K; }
  __device__ __forceinline__ int first(int row) const { return (k + unit(row).shift - 1) % TILE_K / 16 + 1; }
};
