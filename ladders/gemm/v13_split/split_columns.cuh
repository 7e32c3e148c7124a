// Part of kernel.cu: an operand whose lines are columns.

// blockIdx.y is the cluster.
extern "C" __global__ void __launch_bounds__(SPLITTERS, 2)
    split_columns(const float* x, uint4* boxes, float* factors, int* ranges, int lines, int k, int pitch, int chunks,
                  int wide_tiles) {
  split_32(x, boxes, factors, ranges, lines, k, pitch, chunks, wide_tiles, blockIdx.y * 32, gridDim.y * 32);
}
