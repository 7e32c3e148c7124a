// Part of kernel.cu: rows of a that are split while others are multiplied.

#include "fence.cuh"

// The rows of a from `first` on, and their flags: the number of items taken from the queue, and then, for each 128
// rows, the number of items that have been split.
struct Late {
  static constexpr int ITEM = 4;  // rows that a warp takes from the queue at a time
  const float* x;
  uint4* boxes;
  Line* known;
  int* flags;
  int m, k, pitch, chunks, first, all;  // all: the number of rows, including those that only fill the last tile

  // A warp splits a row. It reads it twice, and finds it in a cache the second time.
  __device__ __forceinline__ void split_row(int row) const {
    constexpr int DEEP = 4;  // parts of 8 elements that a lane loads at once
    const int lane = threadIdx.x % 32, parts = chunks * (CHUNK / 8), there = row < m ? k : 0;
    const float* const from = x + (long long)row * pitch;
    auto load = [&](int part, float (&values)[DEEP][8]) {  // zeros beyond k
#pragma unroll
      for (int i = 0; i < DEEP; i++, part += 32) read(from + 8 * part, there - 8 * part, pitch % 4 == 0, values[i]);
    };
    float values[DEEP][8];
    Range range;
#pragma unroll 1
    for (int part = lane; part < parts; part += 32 * DEEP) {
      load(part, values);
#pragma unroll
      for (int i = 0; i < DEEP; i++)
        if (8 * (part + 32 * i) < there) range.add(values[i], min(8, there - 8 * (part + 32 * i)));
    }
    range.add_lanes();
    const float factor = factor_of(range.largest);
    const float same[8] = {factor, factor, factor, factor, factor, factor, factor, factor};
#pragma unroll 1
    for (int part = lane; part < parts; part += 32 * DEEP) {
      load(part, values);
#pragma unroll
      for (int i = 0; i < DEEP; i++)
        if (part + 32 * i < parts) write_part(boxes, values[i], same, row, part + 32 * i, chunks, 0, ROWS / 64);
    }
    if (lane == 0) known[row] = range.line(k);
  }

  // Rows come from the queue: whichever blocks run, one of them splits what another one waits for.
  __device__ __forceinline__ void split() const {
    const int lane = threadIdx.x % 32;
    while (true) {
      int row = 0;
      if (lane == 0) row = first + ITEM * atomicAdd(flags, 1);
      row = __shfl_sync(~0u, row, 0);
      if (row >= all) return;
      for (int i = 0; i < ITEM; i++) split_row(row + i);
      __syncwarp();
      if (lane != 0) continue;
      fence_proxy_async_global();
      __threadfence();
      atomicAdd(flags + 1 + (row - first) / ROWS, 1);
    }
  }

  // Waits until the rows of the tile that begins with `row` have been split.
  __device__ __forceinline__ void wait(int row) const {
    if (row < first) return;
    const volatile int* const done = flags + 1 + (row - first) / ROWS;
    while (*done < ROWS / ITEM) __nanosleep(100);
  }
};
