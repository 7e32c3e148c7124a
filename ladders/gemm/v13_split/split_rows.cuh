// Part of kernel.cu: an operand whose lines are rows.

// Writes part `part` of a line: 8 elements as high halves and as low ones.
__device__ __forceinline__ void write_part(uint4* boxes, const float (&values)[8], const float (&factor)[8], int line,
                                           int part, int chunks, int wide_tiles) {
  uint4 high, low;
  split(values, factor, high, low);
  uint4* const row = boxes + place(line / 64, part / 4, chunks, wide_tiles) * (BOX_BYTES / 16) + line % 64 * 8;
  row[(part % 4) ^ (line % 8)] = high;
  row[(part % 4 + 4) ^ (line % 8)] = low;
}

// Lines of k elements, one after the other; blockIdx.x is the line, blockIdx.y the entry of the batch. The first KEPT
// parts of 8 elements of a thread stay in registers; longer lines are read twice. The last `late` lines are left to
// split_late.cuh, whose flags the first block clears.
extern "C" __global__ void __launch_bounds__(SPLITTERS)
    split_rows(const float* __restrict__ x, uint4* boxes, Line* known, int lines, int k, int pitch, int chunks,
               int wide_tiles, int late, int* flags) {
  constexpr int KEPT = 4;
  __shared__ Range of_warps[SPLITTERS / 32];
  const int line = blockIdx.x, parts = chunks * (CHUNK / 8), all = gridDim.x + late;
  const float* const from = x + ((long long)blockIdx.y * lines + line) * pitch;
  uint4* const to = boxes + (long long)blockIdx.y * (all / 64) * chunks * (BOX_BYTES / 16);
  const bool quads = pitch % 4 == 0;
  const int there = line < lines ? k : 0;
  ptx::grid_wait();
  if (line + blockIdx.y == 0)
    for (int i = threadIdx.x; late > 0 && i <= late / ROWS; i += SPLITTERS) flags[i] = 0;
  float kept[KEPT][8];
  Range range;
#pragma unroll
  for (int i = 0; i < KEPT; i++) {
    const int part = threadIdx.x + i * SPLITTERS;
    if (part >= parts) break;
    read(from + 8 * part, there - 8 * part, quads, kept[i]);
    if (8 * part < there) range.add(kept[i], min(8, there - 8 * part));
  }
  for (int at = threadIdx.x + KEPT * SPLITTERS * 8; at < there; at += SPLITTERS) range.add({from[at]});
  range.add_lanes();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = range;
  __syncthreads();
  range = Range();
  for (int i = 0; i < SPLITTERS / 32; i++) range.add(of_warps[i]);

  const float factor = factor_of(range.largest);
  const float same[8] = {factor, factor, factor, factor, factor, factor, factor, factor};
  if (threadIdx.x == 0) known[blockIdx.y * all + line] = range.line(k);
#pragma unroll
  for (int i = 0; i < KEPT; i++) {
    const int part = threadIdx.x + i * SPLITTERS;
    if (part < parts) write_part(to, kept[i], same, line, part, chunks, wide_tiles);
  }
  for (int part = threadIdx.x + KEPT * SPLITTERS; part < parts; part += SPLITTERS) {
    float values[8];
    read(from + 8 * part, there - 8 * part, quads, values);
    write_part(to, values, same, line, part, chunks, wide_tiles);
  }
}
