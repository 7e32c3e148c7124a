// Part of kernel.cu: parts of rows of a.

// The rows of a. A part is PART elements of a row, with a factor of its own.
struct Parts {
  const float* x;
  uint4* boxes;
  float* factors;  // part after part, those of all lines
  int* ranges;
  int rows, k, pitch, chunks, lines;  // lines: the rows, and those that only fill the last tile

  // A warp splits a part, which stays in its registers in the meantime.
  __device__ __forceinline__ void split(int line, int part) const {
    constexpr int LANES = PART / 8 / 32;  // pieces of 8 elements for each lane
    const int lane = threadIdx.x % 32, there = line < rows ? k : 0, first = part * (PART / 8) + lane;
    const float* const from = x + (long long)line * pitch;
    float values[LANES][8];
    Range range;
#pragma unroll
    for (int i = 0; i < LANES; i++) {
      const int at = 8 * (first + 32 * i);
      read(from + at, there - at, pitch % 4 == 0, values[i]);
    }
#pragma unroll
    for (int i = 0; i < LANES * 8; i++) range.add(values[i / 8][i % 8]);
    for (int i = 16; i > 0; i /= 2) range.add(range.of_lane(i));
    const float factor = factor_of(range.largest);
    if (lane == 0) {
      factors[part * lines + line] = 1.0f / factor;
      ranges[part * lines + line] = range.packed();
    }
    const float same[8] = {factor, factor, factor, factor, factor, factor, factor, factor};
#pragma unroll
    for (int i = 0; i < LANES; i++)
      if (first + 32 * i < chunks * (CHUNK / 8)) write_part(boxes, values[i], same, line, first + 32 * i, chunks, 0);
  }
};

// The first part of rows, before the product: a warp for each. The first block clears the flags.
extern "C" __global__ void __launch_bounds__(SPLITTERS)
    split_parts(const float* x, uint4* boxes, float* factors, int* ranges, int rows, int k, int pitch, int chunks,
                int lines, int* flags, int count) {
  ptx::grid_wait();
  for (int i = threadIdx.x; blockIdx.x == 0 && i < count; i += SPLITTERS) flags[i] = 0;
  const Parts parts{x, boxes, factors, ranges, rows, k, pitch, chunks, lines};
  parts.split(blockIdx.x * (SPLITTERS / 32) + threadIdx.x / 32, 0);
}
