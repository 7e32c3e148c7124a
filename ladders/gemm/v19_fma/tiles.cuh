// Part of kernel.cu: tiles of the operands in shared memory, and the products of a thread.

constexpr int T_ROWS = 4, T_COLUMNS = 8;                           // of a thread
constexpr int DOWN = ROWS / T_ROWS, ACROSS = COLUMNS / T_COLUMNS;  // threads of a group
static_assert(DOWN * ACROSS * GROUPS == THREADS, "every thread is in a group");

// A tile of TILE_K terms of `side` rows of a, or of as many columns of b, which are also called rows here. If k is
// adjacent in memory (`along_k`), a line of the tile has the terms of a row. Otherwise, it has one term of each row.
// `fours` says that lines of the operand consist of fours that start at multiples of 16 bytes. A thread multiplies
// `count` rows.
template <int side, int count, bool along_k, bool fours>
struct Tile {
  static constexpr int LENGTH = along_k ? TILE_K : side, LINES = along_k ? side : TILE_K;
  static constexpr int PITCH = along_k ? TILE_K + 4 : side;  // fours of terms of eight rows are in different banks
  static constexpr int FLOATS = LINES * PITCH;
  static constexpr int WIDE = fours ? 4 : 1, PIECES = LENGTH / WIDE;  // floats of a copy, and copies of a line
  const float* from;
  int pitch, left;  // floats from line to line of the operand, and its rows from the thread's first one on

  __device__ __forceinline__ Tile(const float* operand, int pitch, int first, int rows, int l0) : pitch(pitch) {
    const int line = threadIdx.x / PIECES, at = threadIdx.x % PIECES * WIDE;
    const int row = first + (along_k ? line : at), l = l0 + (along_k ? at : line);
    from = operand + (along_k ? (long long)row * pitch + l : (long long)l * pitch + row);
    left = rows - row;
  }
  // Starts the copies of the next TILE_K terms. Terms from `terms` on, and rows beyond the operand, become zeros.
  __device__ __forceinline__ void copy(float* tile, int terms) {
    const int line = threadIdx.x / PIECES, at = threadIdx.x % PIECES * WIDE;
#pragma unroll
    for (int i = 0; i < LINES; i += THREADS / PIECES) {
      const bool inside = along_k ? i < left && at < terms : left > 0 && line + i < terms;
      ptx::cp_async<4 * WIDE>(tile + (line + i) * PITCH + at, from + (long long)i * pitch, inside ? 4 * WIDE : 0);
    }
    from += along_k ? TILE_K : (long long)TILE_K * pitch;
  }
  // The place in the tile of row i of a thread. `thread` is its number in a column of threads for a, in a row for b.
  static __device__ __forceinline__ int row(int thread, int i) {
    return along_k ? i * (side / count) + thread : (i / 4 * (side / count) + thread) * 4 + i % 4;
  }
  // Reads four terms, from l on, of each row of a thread.
  static __device__ __forceinline__ void read(const float* tile, int thread, int l, float (&x)[4][count]) {
#pragma unroll
    for (int i = 0; i < (along_k ? count : 4); i++) {
      if constexpr (along_k) {
        const float4 four = *reinterpret_cast<const float4*>(tile + row(thread, i) * PITCH + l);
        x[0][i] = four.x, x[1][i] = four.y, x[2][i] = four.z, x[3][i] = four.w;
      } else {
#pragma unroll
        for (int j = 0; j < count; j += 4) {
          const float4 four = *reinterpret_cast<const float4*>(tile + (l + i) * PITCH + row(thread, j));
          x[i][j] = four.x, x[i][j + 1] = four.y, x[i][j + 2] = four.z, x[i][j + 3] = four.w;
        }
      }
    }
  }
};
using A = Tile<ROWS, T_ROWS, !A_LINES, A_FOURS>;
using B = Tile<COLUMNS, T_COLUMNS, !B_LINES, B_FOURS>;
constexpr int STAGE = A::FLOATS + B::FLOATS;

typedef float Sums[T_ROWS][T_COLUMNS];

// Adds the products of a group's share of a stage: every GROUPS-th four of its terms.
__device__ __forceinline__ void multiply(Sums& sums, const float* stage, int group, int down, int across, int terms) {
#pragma unroll 2
  for (int l = 4 * group; l < terms; l += 4 * GROUPS) {
    float a[4][T_ROWS], b[4][T_COLUMNS];
    A::read(stage, down, l, a);
    B::read(stage + A::FLOATS, across, l, b);
#pragma unroll
    for (int term = 0; term < 4; term++)
#pragma unroll
      for (int i = 0; i < T_ROWS; i++)
#pragma unroll
        for (int j = 0; j < T_COLUMNS; j++) sums[i][j] += a[term][i] * b[term][j];
  }
}
