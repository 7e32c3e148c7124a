// Part of kernel.cu: halves of a line that is a row.

// Writes part `part` of a line: 8 elements as high halves and as low ones.
__device__ __forceinline__ void write_part(uint4* boxes, const float (&values)[8], const float (&factor)[8], int line,
                                           int part, int chunks, int wide_tiles) {
  uint4 high, low;
  split(values, factor, high, low);
  uint4* const row = boxes + place(line / 64, part / 4, chunks, wide_tiles) * (BOX_BYTES / 16) + line % 64 * 8;
  row[(part % 4) ^ (line % 8)] = high;
  row[(part % 4 + 4) ^ (line % 8)] = low;
}
