// Part of kernel.cu: what is split while tiles are multiplied, and who waits for it.

// Orders writes to global memory before reads by the copy engine, and the reverse.
__device__ __forceinline__ void fence_proxy_async_global() {
#ifndef MINI_DNN_EMULATOR
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

// Flags: the number of items taken from the queue; for each part of each row of tiles, the number of items that have
// been split; for each strip, whether it has been split.
struct Late {
  static constexpr int ITEM = 8 * Parts::at_once;  // rows whose parts a warp takes from the queue at a time
  Parts rows;
  int* flags;
  int parts, early_rows, early_columns;  // rows and columns of the first round of tiles

  __device__ __forceinline__ int* of_rows(int row, int part) const {
    return flags + 1 + part * (rows.lines / ROWS) + row / ROWS;
  }
  __device__ __forceinline__ int* of_strip(int strip) const { return of_rows(0, parts) + strip; }

  // A warp splits a part of ITEM rows. It has two buffers of 4 KB, so that it splits some rows while others are loaded.
  __device__ __forceinline__ void split_item(const ptx::TensorMap& map, float* buffers, ptx::mbarrier* ready, int row,
                                             int part) const {
    constexpr int STEPS = ITEM / Parts::at_once, BOX = 256;  // elements of a row in a copy
    const int lane = threadIdx.x % 32;
    auto load = [&](int step) {
      if (lane == 0) ptx::mbarrier_arrive_expect_tx(ready + step % 2, 4096);
      __syncwarp();
      const int at = lane * BOX;  // in the buffer
      if (lane < 1024 / BOX)
        ptx::tensor_load(buffers + step % 2 * 1024 + at, map, part * PART + at % PART,
                         row + step * Parts::at_once + at / PART, ready + step % 2);
    };
    load(0);
    load(1);
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
      float values[4][8];
      ptx::mbarrier_wait(ready + step % 2, step / 2 % 2);  // an even number of phases for each item
#pragma unroll
      for (int i = 0; i < 4; i++) read(buffers + step % 2 * 1024 + (i * 32 + lane) * 8, 8, true, values[i]);
      __syncwarp();
      if (step + 2 < STEPS) load(step + 2);
      rows.split(values, row + step * Parts::at_once, part);
    }
  }

  // Items are taken for as many rows at a time as a round of tiles has, part by part. The first part of the first rows
  // is there. Whichever blocks run, one of them splits what another one waits for.
  __device__ __forceinline__ void split(const ptx::TensorMap& map, float* buffers, ptx::mbarrier* ready) const {
    const int lane = threadIdx.x % 32, groups = early_rows / ITEM;
    while (true) {
      int item = 0;
      if (lane == 0) item = groups + atomicAdd(flags, 1);
      item = __shfl_sync(~0u, item, 0);
      const int part = item / groups % parts, first = item / groups / parts * early_rows;
      const int row = first + item % groups * ITEM;
      if (first >= rows.lines) return;
      if (row >= rows.lines) continue;  // there are fewer rows in the end
      split_item(map, buffers, ready, row, part);
      __syncwarp();
      if (lane != 0) continue;
      fence_proxy_async_global();
      __threadfence();
      atomicAdd(of_rows(row, part), 1);
    }
  }

  // All threads of a block call it when they have split a strip.
  __device__ __forceinline__ void publish(int strip) const {
    fence_proxy_async_global();
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence();
    atomicAdd(of_strip(strip), 1);
  }

  __device__ __forceinline__ void wait(const int* flag, int count) const {
    while (*static_cast<const volatile int*>(flag) < count) __nanosleep(100);
  }
  __device__ __forceinline__ void wait_for_rows(int row, int part) const {
    if (row >= early_rows || part > 0) wait(of_rows(row, part), ROWS / ITEM);
    acquire();
  }
  __device__ __forceinline__ void wait_for_columns(int column, int columns) const {
    for (int i = max(column, early_columns); i < column + columns; i += 64) wait(of_strip(i / 64), 1);
    acquire();
  }
  __device__ __forceinline__ void acquire() const {  // only now may the copy engine read
    __threadfence();
    fence_proxy_async_global();
  }
};
