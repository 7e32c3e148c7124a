// Part of kernel.cu: the order of tiles, and where each lies.

// Rows e, e + 8, e + 16, ... of a and c: all of them start at the same place in a piece of 16 bytes.
struct Eighth {
  int number, shift;  // e; elements between the last multiple of 16 bytes and the start of a row
};

struct Eighths {
  int m, n, k;

  __device__ __forceinline__ Tiles tiles() const {
    const int of_eighth = ((m + 7) / 8 + SHARE * ROWS - 1) / (SHARE * ROWS);  // clusters below each other
    return {8 * of_eighth, (n + COLUMNS - 1) / COLUMNS};
  }
  // Clusters side by side in c belong to all eighths: together they read whole rows of a.
  __device__ __forceinline__ Eighth find(const Tiles& tiles, int i, int rank, int& row, int& column) const {
    int entry;
    tiles.find(i, rank, row, column, entry);
    const int cluster = row / (SHARE * ROWS), number = cluster % 8;
    row += (cluster / 8 - cluster) * (SHARE * ROWS);
    return {number, number * (k % 8) % 8};
  }
};
