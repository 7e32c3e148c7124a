// Products that are short, of operands whose lines start anywhere: nothing is copied to aligned lines first. A block
// has few threads and one tile, and several blocks share a multiprocessor: while one waits for its loads, others work.
#pragma once
#include "fragments.cuh"

#include "../v8_final/operand.cuh"

namespace anywhere {

constexpr int WARPS = THREADS / 32, WARP_ROWS = ROWS / 16;  // of a block
constexpr int WARP_COLUMNS = WARPS / WARP_ROWS < 4 ? WARPS / WARP_ROWS : 4, GROUPS = COLUMNS / WARP_COLUMNS / 8;
constexpr int SHARES = WARPS / WARP_ROWS / WARP_COLUMNS;  // warps that share the k of their rows and columns
constexpr int PITCH = COLUMNS + 8;                        // floats from row to row of sums
static_assert(COLUMNS == 64 && ROWS % SPLIT == 0 && TILE_K % (16 * SHARES) == 0, "16 rows and 16 of k for a warp");
constexpr int A_LENGTH = A_TURNED ? ROWS : TILE_K, B_LENGTH = B_TURNED ? TILE_K : COLUMNS;  // of a line of a tile
constexpr int STAGE = (ROWS + COLUMNS) * TILE_K;                                            // elements

// A thread's units of a tile, of eight elements each, on their way from memory to shared memory. They are below each
// other, a multiple of eight lines apart, so all of them begin at the same place in a piece.
template <int tile_lines, int tile_length>
struct Units {
  static constexpr int OF_LINE = tile_length / 8, STEP = THREADS / OF_LINE;  // lines from one unit to the next
  static constexpr int COUNT = (tile_lines + STEP - 1) / STEP;
  static_assert(STEP % 8 == 0 && (tile_lines % STEP == 0 || COUNT == 1), "at one place in a piece");
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
      write(first, 8);  // a constant: nothing to leave out
    else
      write(first, count);
    if (!last) return;
#pragma unroll 1
    for (int i = 0; i < COUNT; i++)
      lines::add_last(first + i * STEP * tile_length, x.from, start + (long long)i * STEP * x.pitch, count_of(x, i),
                      x.whole);
  }
};

// Adds the products of a stage that this warp's rows and columns need, of its share of k from `l0` on; `left` of k
// exist.
__device__ __forceinline__ void multiply(float (&d)[GROUPS][4], const lines::Bits* a_tile, int row, int column, int l0,
                                         int left) {
  const lines::Bits* const b_tile = a_tile + ROWS * TILE_K;
#pragma unroll
  for (int i = 0; i < TILE_K / SHARES; i += 16) {
    const int l = l0 + i;
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

// Adds the sums of all shares of k and of all blocks of a cluster, which lie in `sums`, and stores a block's rows. A
// warp writes a row; a lane writes two elements of 16 bits that share an aligned word. If a row starts at an odd place,
// the last lane has the first element.
__device__ __forceinline__ void store(float* sums, const sums::Matrix<Out>& to, int row0, int column0, int rank) {
  constexpr bool words = sizeof(Out) == 2;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, here = to.n - column0;
  const float* of_block[SPLIT];
#pragma unroll
  for (int i = 0; i < SPLIT; i++) of_block[i] = SPLIT > 1 ? ptx::cluster_shared(sums, i) : sums;
#pragma unroll 4
  for (int i = warp; i < ROWS / SPLIT; i += WARPS) {
    const int row = rank * (ROWS / SPLIT) + i;
    if (row0 + row >= to.m) break;
    const long long at = (long long)(row0 + row) * to.pitch + column0;
    Out* const c = to.c + at;
    const int odd = words ? int(reinterpret_cast<size_t>(c) / 2 % 2) : 0;
    const int first = words ? 2 * lane + odd : lane, second = words ? (first + 1) % COLUMNS : lane + 32;
    auto sum = [&](int column) {
      float all = 0.0f;
#pragma unroll
      for (int j = 0; j < SPLIT * SHARES; j++) all += of_block[j / SHARES][(j % SHARES * ROWS + row) * PITCH + column];
      all *= to.alpha;
      return Out(to.beta != 0.0f && column < here ? all + to.beta * float(to.c0[at + column]) : all);
    };
    const sums::Pair<Out> pair{sum(first), sum(second)};
    if (words && second > first && second < here) {
      *reinterpret_cast<sums::Pair<Out>*>(c + first) = pair;
    } else {
      if (first < here) c[first] = pair.low;
      if (second < here) c[second] = pair.high;
    }
  }
}

// `memory`: of the stages, and later of the sums.
__device__ __forceinline__ void product(char* memory, const Lines& a, const Lines& b, const Out* c0, Out* c, int m,
                                        int n, int k, int c_pitch, float alpha, float beta) {
  lines::Bits* const stages = reinterpret_cast<lines::Bits*>(memory);
  const int across = (n + COLUMNS - 1) / COLUMNS, tiles = (m + ROWS - 1) / ROWS * across;  // in a row, in an entry
  const int rank = blockIdx.x % SPLIT, entry = blockIdx.x / SPLIT / tiles, tile = blockIdx.x / SPLIT - entry * tiles;
  const int row0 = tile / across * ROWS, column0 = tile % across * COLUMNS;
  const int steps = (k + TILE_K - 1) / TILE_K, first = steps * rank / SPLIT, last = steps * (rank + 1) / SPLIT;
  Units<A_TURNED ? TILE_K : ROWS, A_LENGTH> of_a;
  Units<B_TURNED ? COLUMNS : TILE_K, B_LENGTH> of_b;
  auto read = [&](int step) {
    const int l0 = step * TILE_K;
    of_a.read(a, A_TURNED ? l0 : row0, A_TURNED ? row0 : l0, entry);
    of_b.read(b, B_TURNED ? column0 : l0, B_TURNED ? l0 : column0, entry);
  };

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, share = warp / (WARP_ROWS * WARP_COLUMNS);
  const int row = warp / WARP_COLUMNS % WARP_ROWS * 16, column = warp % WARP_COLUMNS * GROUPS * 8;
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
    multiply(d, stage, row, column, share * (TILE_K / SHARES), k - step * TILE_K);
  }

  __syncthreads();  // the sums take the place of the stages
  const long long of_entry = (long long)entry * m * c_pitch;
  const sums::Matrix<Out> to{c0 + of_entry, c + of_entry, m, n, c_pitch, alpha, beta};
  if constexpr (BY_ROWS) {
    lines::store(d, to, memory + warp * 4096, row0 + row, column0);
    return;
  }
  float* const sums = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int j = 0; j < GROUPS; j++)
#pragma unroll
    for (int h = 0; h < 2; h++)
      *reinterpret_cast<float2*>(sums + (share * ROWS + row + 8 * h + lane / 4) * PITCH + column + 8 * j +
                                 lane % 4 * 2) = make_float2(d[j][2 * h], d[j][2 * h + 1]);
  // all sums are there
  if (SPLIT > 1)
    ptx::cluster_sync();
  else
    __syncthreads();
  store(sums, to, row0, column0, rank);
  if (SPLIT > 1) ptx::cluster_arrive_relaxed();
  if (SPLIT > 1) ptx::cluster_wait();  // others have read this block's sums
}

}  // namespace anywhere
