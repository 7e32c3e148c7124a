// Part of kernel.cu: a line of an operand whose lines are rows.

// Writes part `part` of a line: 8 elements as high halves and as low ones.
__device__ __forceinline__ void write_part(uint4* boxes, const float (&values)[8], const float (&factor)[8], int line,
                                           int part, int chunks, int wide_tiles, int narrow_boxes) {
  uint4 high, low;
  split(values, factor, high, low);
  uint4* const row =
      boxes + place(line / 64, part / 4, chunks, wide_tiles, narrow_boxes) * (BOX_BYTES / 16) + line % 64 * 8;
  row[(part % 4) ^ (line % 8)] = high;
  row[(part % 4 + 4) ^ (line % 8)] = low;
}

// A warpgroup splits a line of k adjacent elements. The first KEPT parts of 8 elements of a thread stay in registers;
// longer lines are read twice. All threads of a block call this together.
__device__ __forceinline__ void split_row(const Input& of, int line, int entry, int k, int chunks) {
  constexpr int KEPT = 4, TEAM = 128, WARPS = TEAM / 32;
  __shared__ Range of_warps[SPLITTERS / 32];
  const int thread = threadIdx.x % TEAM, warp = threadIdx.x / 32;
  const int parts = chunks * (CHUNK / 8), there = line < of.lines ? k : 0;
  const float* const from = of.x + ((long long)entry * of.lines + line) * of.pitch;
  uint4* const to = of.boxes + (long long)entry * (of.all / 64) * chunks * (BOX_BYTES / 16);
  const bool quads = of.pitch % 4 == 0;
  float kept[KEPT][8];
  Range range;
#pragma unroll
  for (int i = 0; i < KEPT; i++) {
    const int part = thread + i * TEAM;
    read(from + 8 * part, there - 8 * part, quads, kept[i]);
  }
#pragma unroll
  for (int i = 0; i < KEPT; i++) {
    const int part = thread + i * TEAM;
    if (8 * part < there) range.add(kept[i], min(8, there - 8 * part));
  }
  for (int at = thread + KEPT * TEAM * 8; at < there; at += TEAM) range.add({from[at]});
  range.add_lanes();
  if (threadIdx.x % 32 == 0) of_warps[warp] = range;
  __syncthreads();
  range = Range();
  for (int i = 0; i < WARPS; i++) range.add(of_warps[warp / WARPS * WARPS + i]);

  const float factor = factor_of(range.largest);
  const float same[8] = {factor, factor, factor, factor, factor, factor, factor, factor};
  if (thread == 0) of.known[entry * of.all + line] = range.line(k);
#pragma unroll
  for (int i = 0; i < KEPT; i++) {
    const int part = thread + i * TEAM;
    if (part < parts) write_part(to, kept[i], same, line, part, chunks, of.wide_tiles, of.narrow_boxes);
  }
  for (int part = thread + KEPT * TEAM; part < parts; part += TEAM) {
    float values[8];
    read(from + 8 * part, there - 8 * part, quads, values);
    write_part(to, values, same, line, part, chunks, of.wide_tiles, of.narrow_boxes);
  }
}
