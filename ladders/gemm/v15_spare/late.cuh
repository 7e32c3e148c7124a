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
  static constexpr int ITEM = 8;  // rows whose parts a warp takes from the queue at a time
  Parts rows;
  int* flags;
  int parts, early_columns;

  __device__ __forceinline__ int band() const { return min(BAND * ROWS, rows.lines); }  // rows of the first tiles
  __device__ __forceinline__ int* of_rows(int row, int part) const {
    return flags + 1 + part * (rows.lines / ROWS) + row / ROWS;
  }
  __device__ __forceinline__ int* of_strip(int strip) const { return of_rows(0, parts) + strip; }

  // Items are taken band by band, and in a band part by part. The first part of the first band is there. Whichever
  // blocks run, one of them splits what another one waits for.
  __device__ __forceinline__ void split() const {
    const int lane = threadIdx.x % 32, groups = band() / ITEM;
    while (true) {
      int item = 0;
      if (lane == 0) item = groups + atomicAdd(flags, 1);
      item = __shfl_sync(~0u, item, 0);
      const int part = item / groups % parts, row = item / groups / parts * band() + item % groups * ITEM;
      if (item / groups / parts * band() >= rows.lines) return;
      if (row >= rows.lines) continue;  // the last band is shorter
      for (int i = 0; i < ITEM; i++) rows.split(row + i, part);
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
    if (row >= band() || part > 0) wait(of_rows(row, part), ROWS / ITEM);
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
