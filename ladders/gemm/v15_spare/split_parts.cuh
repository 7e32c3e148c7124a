// Part of kernel.cu: parts of rows of a.

// The rows of a. A part is PART elements of a row, with a factor of its own. A warp splits some at a time: `at_once`
// rows, 1024 elements, which are in its registers in the meantime.
struct Parts {
  static constexpr int at_once = 1024 / PART, pieces = PART / 8 / 32;  // pieces of 8 elements for each lane
  uint4* boxes;
  float* factors;  // part after part, those of all lines
  int* ranges;
  int chunks, lines;  // lines: the rows, and those that only fill the last tile

  __device__ __forceinline__ void split(const float (&values)[at_once * pieces][8], int line, int part) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < at_once; r++) {
      Range range;
#pragma unroll
      for (int i = 0; i < pieces * 8; i++) range.add(values[r * pieces + i / 8][i % 8]);
      for (int i = 16; i > 0; i /= 2) range.add(range.of_lane(i));
      const float factor = factor_of(range.largest);
      if (lane == 0) {
        factors[part * lines + line + r] = 1.0f / factor;
        ranges[part * lines + line + r] = range.packed();
      }
      const float same[8] = {factor, factor, factor, factor, factor, factor, factor, factor};
#pragma unroll
      for (int i = 0; i < pieces; i++) {
        const int piece = part * (PART / 8) + i * 32 + lane;
        if (piece < chunks * (CHUNK / 8)) write_part(boxes, values[r * pieces + i], same, line + r, piece, chunks, 0);
      }
    }
  }
};
