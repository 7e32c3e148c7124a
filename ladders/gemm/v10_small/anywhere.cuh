// Products with short sums or few rows, of operands whose lines start anywhere, without copies to aligned lines. A
// block has few threads and one tile, and several blocks share a multiprocessor: while one waits for its loads, others
// work.
#pragma once
#include "add.cuh"
#include "fragments.cuh"

#include "../v8_final/operand.cuh"

namespace anywhere {

constexpr int WARPS = 4, WARP_ROWS = ROWS / 16, WARP_COLUMNS = WARPS / WARP_ROWS;  // of a block
constexpr int GROUPS = COLUMNS / WARP_COLUMNS / 8;                                 // of 8 columns of a warp
static_assert(THREADS == WARPS * 32 && ROWS <= 64 && COLUMNS == 64, "a warp has 16 rows");
constexpr int A_LENGTH = A_TURNED ? ROWS : TILE_K, B_LENGTH = B_TURNED ? TILE_K : COLUMNS;  // of a line of a tile
constexpr int STAGE = (ROWS + COLUMNS) * TILE_K;                                            // elements

// A thread's units of a tile, of eight elements each, while they are loaded. They are below each other, a multiple of
// eight lines apart, so all of them begin at the same place in a piece.
template <int tile_lines, int tile_length>
struct Units {
  static constexpr int OF_LINE = tile_length / 8, STEP = THREADS / OF_LINE;  // lines from one unit to the next
  static constexpr int COUNT = (tile_lines + STEP - 1) / STEP;
  static_assert(STEP % 8 == 0 && (tile_lines % STEP == 0 || COUNT == 1), "at one place in a piece");
  static_assert(tile_lines <= 128,
                "with HAND_PITCH of variant.py, units are less than 2^30 elements apart: see read()");
  lines::Pieces pieces[COUNT];
  long long start;  // element of the first unit
  int count, line;  // existing elements of a unit, the first unit's line
  bool last;        // the tile may contain the operand's last elements

  __device__ __forceinline__ bool any() const { return tile_lines >= STEP || int(threadIdx.x) < tile_lines * OF_LINE; }
  __device__ __forceinline__ int count_of(const Lines& x, int i) const {
    return any() && line + i * STEP < x.lines ? count : 0;
  }
  __device__ __forceinline__ void read(const Lines& x, int line0, int at0, int entry) {
    const int at = at0 + threadIdx.x % OF_LINE * 8;
    const long long corner = (long long)entry * x.lines * x.pitch;
    line = line0 + threadIdx.x / OF_LINE;
    start = corner + (long long)line * x.pitch + at;
    count = min(x.length - at, 8);
    last = corner + (long long)min(line0 + tile_lines - 1, x.lines - 1) * x.pitch + at0 + tile_length > x.whole;
    const int shift = int(start) & 7, left = int(min(x.whole - start, 1ll << 30));
    const uint4* const near = reinterpret_cast<const uint4*>(x.from + (start - shift));
#pragma unroll
    for (int i = 0; i < COUNT; i++)
      pieces[i] = lines::read(near + i * (STEP / 8) * x.pitch, shift, min(count_of(x, i), left - i * STEP * x.pitch));
  }
  __device__ __forceinline__ void write(lines::Bits* first, int existing) const {
#pragma unroll
    for (int i = 0; i < COUNT; i++)
      *reinterpret_cast<uint4*>(first + i * STEP * tile_length) = lines::aligned(pieces[i], int(start) & 7, existing);
  }
  __device__ __forceinline__ void put(const Lines& x, lines::Bits* tile) const {
    if (!any()) return;
    lines::Bits* const first = tile + fragments::place<tile_length>(threadIdx.x / OF_LINE, threadIdx.x % OF_LINE * 8);
    if (count >= 8)
      write(first, 8);  // a constant, so that no element is tested
    else
      write(first, count);
    if (!last) return;
#pragma unroll 1
    for (int i = 0; i < COUNT; i++)
      lines::add_last(first + i * STEP * tile_length, x.from, start + (long long)i * STEP * x.pitch, count_of(x, i),
                      x.whole);
  }
};

// Adds the products of a stage for this warp's rows and columns. `left` terms of k are left.
__device__ __forceinline__ void multiply(float (&d)[GROUPS][4], const lines::Bits* a_tile, int row, int column,
                                         int left) {
  const lines::Bits* const b_tile = a_tile + ROWS * TILE_K;
#pragma unroll
  for (int l = 0; l < TILE_K; l += 16) {
    if (l >= left) break;
    unsigned a[4];
    fragments::matrices<A_LENGTH, A_TURNED, !A_TURNED>(a, a_tile, A_TURNED ? l : row, A_TURNED ? row : l);
#pragma unroll
    for (int j = 0; j < GROUPS; j += 2) {
      unsigned b[4];  // k and k + 8 of eight columns, then of the next eight
      const int from = column + 8 * j;
      fragments::matrices<B_LENGTH, !B_TURNED, !B_TURNED>(b, b_tile, B_TURNED ? from : l, B_TURNED ? l : from);
      const unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
      fragments::multiply(d[j], a, low);
      fragments::multiply(d[j + 1], a, high);
    }
  }
}

// `memory` has the stages, and `partial` the sums of parts of k.
__device__ __forceinline__ void product(char* memory, const Lines& a, const Lines& b, float* partial, const Out* c0,
                                        Out* c, int m, int n, int k, int c_pitch, float alpha, float beta) {
  lines::Bits* const stages = reinterpret_cast<lines::Bits*>(memory);
  const int down = (m + ROWS - 1) / ROWS, across = (n + COLUMNS - 1) / COLUMNS, tiles = down * across;
  const int group = blockIdx.x / tiles, tile = blockIdx.x - group * tiles, entry = group / PARTS, part = group % PARTS;
  const int row0 = tile / across * ROWS, column0 = tile % across * COLUMNS;
  const int steps = (k + TILE_K - 1) / TILE_K, first = steps * part / PARTS, last = steps * (part + 1) / PARTS;
  Units<A_TURNED ? TILE_K : ROWS, A_LENGTH> of_a;
  Units<B_TURNED ? COLUMNS : TILE_K, B_LENGTH> of_b;
  auto read = [&](int step) {
    const int l0 = step * TILE_K;
    of_a.read(a, A_TURNED ? l0 : row0, A_TURNED ? row0 : l0, entry);
    of_b.read(b, B_TURNED ? column0 : l0, B_TURNED ? l0 : column0, entry);
  };

  const int warp = threadIdx.x / 32, row = warp / WARP_COLUMNS * 16, column = warp % WARP_COLUMNS * GROUPS * 8;
  ptx::grid_wait();
  read(first);
  ptx::grid_launch_dependents();
  float d[GROUPS][4] = {};
#pragma unroll 1
  for (int step = first; step < last; step++) {  // one stage is enough for one step
    lines::Bits* const stage = stages + (step - first) % STAGES * STAGE;
    of_a.put(a, stage);
    of_b.put(b, stage + ROWS * TILE_K);
    if (step + 1 < last) read(step + 1);
    __syncthreads();  // the stage is complete, and all have read the one before, which is written next
    multiply(d, stage, row, column, k - step * TILE_K);
  }

  if constexpr (PARTS > 1) {
    add::keep(d, partial, group, down * ROWS, across * COLUMNS, row0 + row, column0 + column);
    return;
  }
  const long long of_entry = (long long)entry * m * c_pitch;
  const sums::Matrix<Out> to{c0 + of_entry, c + of_entry, m, n, c_pitch, alpha, beta};
  if constexpr (BY_ROWS) {
    __syncthreads();  // rows of c take the place of the stages
    lines::store(d, to, memory + warp * 4096, row0 + row, column0);
  } else {
    sums::store<false>(d, to, row0 + row, column0 + column);
  }
}

}  // namespace anywhere
