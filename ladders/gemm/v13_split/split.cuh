// Part of kernel.cu: both operands are split by one launch.

// An operand, and where its halves and what is known of its lines go.
struct Input {
  const float* x;
  uint4* boxes;
  Line* known;
  int lines, all, pitch;         // all: the number of lines, including those that only fill the last tiles
  int wide_tiles, narrow_boxes;  // the number of tiles of WIDE lines, and the boxes of any other one
};

#include "split_rows.cuh"
#include "split_columns.cuh"

// Blocks of b come first, unless only lines of a are columns: clusters start at multiples of their size, and any number
// of blocks may follow, each with two rows. blockIdx.y is the entry of the batch. The last `late` rows of a are left to
// split_late.cuh, whose flags the first block clears.
extern "C" __global__ void __launch_bounds__(SPLITTERS, 2)
    split_both(const float* a, uint4* a_boxes, Line* a_known, const float* b, uint4* b_boxes, Line* b_known, int* flags,
               int m, int n, int k, int a_pitch, int b_pitch, int a_all, int b_all, int chunks, int wide_tiles,
               int late, int cluster) {
  const Input of_a{a, a_boxes, a_known, m, a_all, a_pitch, 0, ROWS / 64},
      of_b{b, b_boxes, b_known, n, b_all, b_pitch, wide_tiles, NARROW / 64};
  constexpr int ROWS_AT_ONCE = SPLITTERS / 128;
  constexpr bool A_FIRST = A_LINES && !B_LINES;
  const int a_blocks = A_LINES ? a_all / 32 * cluster : (a_all - late) / ROWS_AT_ONCE,
            b_blocks = B_LINES ? b_all / 32 * cluster : b_all / ROWS_AT_ONCE;
  const int entry = blockIdx.y, first_blocks = A_FIRST ? a_blocks : b_blocks;
  const bool is_first = blockIdx.x < first_blocks;
  const int block = blockIdx.x - (is_first ? 0 : first_blocks);
  ptx::grid_wait();
  if (blockIdx.x + blockIdx.y == 0)
    for (int i = threadIdx.x; late > 0 && i <= late / ROWS; i += SPLITTERS) flags[i] = 0;
  if (is_first == A_FIRST) {
    if (A_LINES)
      split_columns(of_a, block / cluster * 32, entry, k, chunks, cluster);
    else if (block < a_blocks)
      split_row(of_a, block * ROWS_AT_ONCE + threadIdx.x / 128, entry, k, chunks);
  } else {
    if (B_LINES)
      split_columns(of_b, block / cluster * 32, entry, k, chunks, cluster);
    else if (block < b_blocks)
      split_row(of_b, block * ROWS_AT_ONCE + threadIdx.x / 128, entry, k, chunks);
  }
}
