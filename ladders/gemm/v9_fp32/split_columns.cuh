// Part of kernel.cu: an operand whose lines are columns.

// Runs before find_ranges.
extern "C" __global__ void __launch_bounds__(SPLITTERS) clear(Range* ranges, int count) {
  const int i = blockIdx.x * SPLITTERS + threadIdx.x;
  ptx::grid_wait();
  if (i < count) ranges[i] = Range();
}

// Adjacent lines, k after k: blockIdx.x is 256 lines, blockIdx.y one part of k of gridDim.y,
// blockIdx.z the entry of the batch. A thread has a line, and neighbours have neighbours.
extern "C" __global__ void __launch_bounds__(SPLITTERS)
    find_ranges(const float* __restrict__ x, Range* ranges, int lines, int k, int pitch, int all_lines) {
  constexpr int STEP = 32;  // elements that a thread loads at once
  const int line = blockIdx.x * SPLITTERS + threadIdx.x, part = (k + gridDim.y - 1) / gridDim.y;
  const int from = blockIdx.y * part, to = min(k, from + part);
  ptx::grid_wait();
  if (line >= lines) return;
  const float* const column = x + (long long)blockIdx.z * k * pitch + line;
  Range range;
#pragma unroll 1
  for (int i = from; i < to; i += STEP) {
    float values[STEP];
#pragma unroll
    for (int j = 0; j < STEP; j++) values[j] = i + j < to ? column[(long long)(i + j) * pitch] : 0.0f;
    range.add(values, min(STEP, to - i));
  }
  Range* const of_line = ranges + (long long)blockIdx.z * all_lines + line;
  atomicMax(&of_line->largest, range.largest);
  atomicMin(&of_line->least, range.least);
  atomicAdd(&of_line->exponents, range.exponents);
}

// The same lines: blockIdx.x is a box of 64, blockIdx.y two chunks of k, blockIdx.z the entry of the batch.
extern "C" __global__ void __launch_bounds__(SPLITTERS)
    split_columns(const float* __restrict__ x, uint4* boxes, Line* known, const Range* ranges, int lines, int k,
                  int pitch, int chunks, int wide_tiles) {
  const int part = threadIdx.x % 8, row = threadIdx.x / 8, line = blockIdx.x * 64 + part * 8;
  const long long first_box = (long long)blockIdx.z * gridDim.x;  // of the entry
  const float* const from = x + (long long)blockIdx.z * k * pitch + line;
  float values[2][8], factor[8];
  ptx::grid_wait();
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int at = (blockIdx.y * 2 + h) * CHUNK + row;
    read(from + (long long)at * pitch, at < k ? lines - line : 0, pitch % 4 == 0, values[h]);
  }
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const long long at = (first_box + blockIdx.x) * 64 + part * 8 + i;
    factor[i] = factor_of(ranges[at].largest);
    if (blockIdx.y == 0 && row == 0) known[at] = ranges[at].line(k);
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const long long box = first_box * chunks + place(blockIdx.x, blockIdx.y * 2 + h, chunks, wide_tiles);
    uint4* const to = boxes + box * (BOX_BYTES / 16) + row * 8 + (part ^ (row % 8));
    split(values[h], factor, to[0], to[BOX_BYTES / 32]);
  }
}
