// Part of kernel.cu: 32 lines of an operand whose lines are columns.

// A range as the 16 bytes that st.async stores, and back.
__device__ __forceinline__ float4 bits_of(const Range& range) {
  return {__uint_as_float(range.largest), __uint_as_float(range.least), __uint_as_float(range.exponents), 0.0f};
}
__device__ __forceinline__ Range range_of(const float4& bits) {
  Range range;
  range.largest = __float_as_uint(bits.x), range.least = __float_as_uint(bits.y);
  range.exponents = __float_as_uint(bits.z);
  return range;
}

// Lines from `first` on, adjacent, k after k. The `blocks` blocks of a cluster take 64 k in turn. A thread has 8 lines.
// The first STEPS_KEPT parts stay in registers until the factors are known; of a longer k, the rest is read twice. The
// blocks send their ranges to each other by st.async: a barrier of the cluster would have to release all stores.
__device__ __forceinline__ void split_columns(const Input& of, int first, int entry, int k, int chunks, int blocks) {
  constexpr int PARTS = 4, WARPS = SPLITTERS / 32;
  static_assert(SPLITTERS / PARTS == 2 * CHUNK && PARTS * 8 == 32, "a block has 32 lines and two chunks at a time");
  __shared__ Range of_warps[WARPS][32];
  __shared__ float4 of_blocks[CLUSTER][32];
  __shared__ ptx::mbarrier landed;
  __shared__ float of_lines[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = threadIdx.x % PARTS, row = threadIdx.x / PARTS;
  const int left = of.lines - first - part * 8, steps = chunks / 2, rank = blockIdx.x % blocks;
  if (blocks > 1 && threadIdx.x == 0) {
    ptx::mbarrier_init(&landed, 1);
    ptx::mbarrier_arrive_expect_tx(&landed, blocks * 32 * 16);
    ptx::fence_mbarrier_init();
  }
  __syncwarp();
  ptx::cluster_arrive_relaxed();
  const bool quads = of.pitch % 4 == 0;
  const float* const from = of.x + (long long)entry * k * of.pitch + first + part * 8;
  auto load = [&](int step, float (&values)[8]) {  // zeros beyond k
    const int at = step * 2 * CHUNK + row;
    read(from + (long long)at * of.pitch, at < k ? left : 0, quads, values);
  };
  Range of_thread[8], range;
  float kept[STEPS_KEPT][8], factor[8];
#pragma unroll
  for (int i = 0; i < STEPS_KEPT; i++) load(rank + i * blocks, kept[i]);
  const int of_row = (k - row + 2 * CHUNK - 1) / (2 * CHUNK);  // steps in which the thread's row exists
  const int there = min(STEPS_KEPT, max(0, (of_row - rank + blocks - 1) / blocks));
#pragma unroll
  for (int i = 0; i < 8; i++) {
    float of_line[STEPS_KEPT];
#pragma unroll
    for (int j = 0; j < STEPS_KEPT; j++) of_line[j] = kept[j][i];
    of_thread[i].add(of_line, there);
  }
  for (int step = rank + STEPS_KEPT * blocks; step < steps; step += blocks) {
    float values[8];
    load(step, values);
    if (step * 2 * CHUNK + row >= k) break;
#pragma unroll
    for (int i = 0; i < 8; i++) of_thread[i].add({values[i]});
  }

  // Lanes with the same part exchange halves of their lines, until each has one.
#pragma unroll
  for (int half = 4; half > 0; half /= 2) {
    const bool upper = (lane & half * PARTS) != 0;
#pragma unroll
    for (int i = 0; i < half; i++) {
      const Range away = upper ? of_thread[i] : of_thread[i + half];
      if (upper) of_thread[i] = of_thread[i + half];
      of_thread[i].add(away.of_lane(half * PARTS));
    }
  }
  of_warps[warp][part * 8 + lane / PARTS] = of_thread[0];
  __syncthreads();
  ptx::cluster_wait();  // all blocks have started, and their mbarriers are initialised
  if (warp == 0) {
    for (int i = 0; i < WARPS; i++) range.add(of_warps[i][lane]);
    if (blocks > 1) {
      for (int i = 0; i < blocks; i++) {
        float4* const there = ptx::cluster_shared(of_blocks[rank] + lane, i);
        ptx::store_async(&there->x, bits_of(range), ptx::cluster_shared(&landed, i));
      }
      ptx::mbarrier_wait(&landed, 0);
      range = Range();
      for (int i = 0; i < blocks; i++) range.add(range_of(of_blocks[i][lane]));
    }
    of_lines[lane] = factor_of(range.largest);
    if (rank == 0) of.known[entry * of.all + first + lane] = range.line(k);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 8; i++) factor[i] = of_lines[part * 8 + i];

  auto write = [&](int step, const float (&values)[8]) {
    const long long box = (long long)entry * (of.all / 64) * chunks +
                          place(first / 64, step * 2 + row / CHUNK, chunks, of.wide_tiles, of.narrow_boxes);
    uint4* const to = of.boxes + box * (BOX_BYTES / 16) + row % CHUNK * 8 + ((first % 64 / 8 + part) ^ (row % 8));
    split(values, factor, to[0], to[BOX_BYTES / 32]);
  };
#pragma unroll
  for (int i = 0; i < STEPS_KEPT; i++)
    if (rank + i * blocks < steps) write(rank + i * blocks, kept[i]);
  for (int step = rank + STEPS_KEPT * blocks; step < steps; step += blocks) {
    float values[8];
    load(step, values);
    write(step, values);
  }
}
