// The tiles of gemm: sizes, the ring of stages, and which tile a block processes.
#pragma once
#include <mini_dnn/lines.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

constexpr int CONSUMERS = ROWS / 64, BOX_BYTES = 64 * TILE_K * 2;  // a box: 64 rows or columns
constexpr int CLUSTER = SHARE * SPLIT;
constexpr int A_BYTES = ROWS * TILE_K * 2, B_BYTES = COLUMNS * TILE_K * 2;
constexpr int GROUPS = COLUMNS / 8, PART = GROUPS / SPLIT;  // of 8 columns; of those that a block adds up
constexpr int STAGED_BYTES = 4096;                          // of a warp
constexpr int SLOT = CONSUMERS * 128;                       // of four sums, from another block: a place for each thread
constexpr int PRODUCERS = LOADERS > 0 ? LOADERS * 128 : 32;  // threads: warpgroups that load by hand, or a warp
static_assert(TILE_K == 64 && (SMALL || THREADS == CONSUMERS * 128 + PRODUCERS), "consumers, then producers");
static_assert(LOADERS == 0 || (SHARE == 1 && ROWS == COLUMNS), "pairs of boxes, not multicast");
static_assert(SHARE == 1 || SPLIT == 1, "a cluster shares columns of b, or k");
static_assert(PARTS == 1 || SPLIT == 1, "k is divided once");
static_assert((SMALL || COLUMNS / 64 % SHARE == 0) && GROUPS % SPLIT == 0, "equal parts");

struct Stage {  // of the ring, and the parity of its phase
  int index = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++index == STAGES) index = 0, parity ^= 1;
  }
};

struct Tiles {
  int rows, columns;  // of tiles of a cluster, in an entry: of the batch, and a part of k
  int steps;          // of k
  // BAND rows are one band; in it, tiles follow each other column by column.
  __device__ __forceinline__ void find(int i, int rank, int& row, int& column, int& entry) const {
    entry = i / (rows * columns);
    i -= entry * rows * columns;
    const int first = i / (BAND * columns) * BAND, height = min(BAND, rows - first), in_band = i - first * columns;
    row = ((first + in_band % height) * SHARE + rank % SHARE) * ROWS;
    column = in_band / height * COLUMNS;
  }
  // The steps of this block in tile i.
  __device__ __forceinline__ void range(int i, int rank, int& first, int& last) const {
    const int part = SPLIT > 1 ? rank : PARTS > 1 ? i / (rows * columns) % PARTS : 0;
    first = steps * part / (SPLIT * PARTS), last = steps * (part + 1) / (SPLIT * PARTS);
  }
};
