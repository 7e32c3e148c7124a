// Part of kernel.cu: what the first round of tiles needs, before the product.

// The first `columns` columns of b, by clusters, and the first parts of the first `rows` rows of a, by the other
// blocks. blockIdx.y is the cluster. The first of the other blocks clears the flags.
extern "C" __global__ void __launch_bounds__(SPLITTERS, 2)
    split_first(const float* a, uint4* a_boxes, float* a_factors, int* a_ranges, int m, int a_pitch, int a_lines,
                const float* b, uint4* b_boxes, float* b_factors, int* b_ranges, int n, int b_pitch, int wide_tiles,
                int columns, int rows, int k, int chunks, int* flags, int count) {
  if (blockIdx.y < columns / 32) {
    split_32(b, b_boxes, b_factors, b_ranges, n, k, b_pitch, chunks, wide_tiles, blockIdx.y * 32, columns);
    return;
  }
  const int block = (blockIdx.y - columns / 32) * gridDim.x + blockIdx.x;
  const int first = (block * (SPLITTERS / 32) + threadIdx.x / 32) * Parts::at_once;
  ptx::grid_wait();
  for (int i = threadIdx.x; block == 0 && i < count; i += SPLITTERS) flags[i] = 0;
  float values[Parts::at_once * Parts::pieces][8];
#pragma unroll
  for (int i = 0; i < Parts::at_once * Parts::pieces; i++) {
    const int line = first + i / Parts::pieces, at = 8 * (i % Parts::pieces * 32 + threadIdx.x % 32);
    read(a + (long long)line * a_pitch + at, line < m ? min(k, PART) - at : 0, true, values[i]);
  }
  if (first < rows) Parts{a_boxes, a_factors, a_ranges, chunks, a_lines}.split(values, first, 0);
}
