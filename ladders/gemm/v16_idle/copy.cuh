// Part of kernel.cu: the copy of b whose rows start with lines of the cache.

#include "../v13_split/fence.cuh"

using lines::Bits;

// b is copied in strips of 256 columns. A flag for each strip counts the blocks that have copied their part of it.
struct Copy {
  static constexpr int STRIP = 256, WARPS = THREADS / 32;
  const Bits* from;
  Bits* to;
  int* flags;
  int n, k, pitch, to_pitch;

  // The part of a strip of block `rank` of `blocks`. A lane copies 8 columns of DEEP rows at a time.
  __device__ __forceinline__ void strip(int number, int rank, int blocks) const {
    const int column = number * STRIP + threadIdx.x % 32 * 8, count = min(n - column, 8);
    const long long end = ((long long)(k - 1) * pitch + n) / 8 * 8;  // of whole pieces of 16 bytes
    const int step = WARPS * blocks;
    for (int first = rank * WARPS + threadIdx.x / 32; first < k; first += DEEP * step) {
      lines::Pieces found[DEEP];
      const long long start = (long long)first * pitch + column, next = (long long)step * pitch;
#pragma unroll
      for (int i = 0; i < DEEP; i++) {
        const long long at = start + i * next;
        const int shift = int(at) & 7, there = first + i * step < k ? count : 0;
        found[i] = lines::read(reinterpret_cast<const uint4*>(from + (at - shift)), shift,
                               int(min((long long)there, end - at)));
      }
#pragma unroll
      for (int i = 0; i < DEEP; i++) {
        if (count <= 0 || first + i * step >= k) break;
        const long long at = start + i * next;
        Bits* const eight = to + (long long)(first + i * step) * to_pitch + column;
        *reinterpret_cast<uint4*>(eight) = lines::aligned(found[i], int(at) & 7, count);
        lines::add_last(eight, from, at, count, end);
      }
    }
  }

  // All strips from `first` on, in the order in which tiles need them, by the first `blocks` blocks.
  __device__ __forceinline__ void late(int first, int blocks) const {
    for (int i = first; i * STRIP < n; i++) {
      strip(i, blockIdx.x, blocks);
      fence_proxy_async_global();
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) atomicAdd(flags + i, 1);
    }
  }
  // Until columns up to `last` are there.
  __device__ __forceinline__ void wait(int last, int early, int blocks) const {
    const int strip = (min(last, n) - 1) / STRIP;
    if (strip < early) return;
    const volatile int* const done = flags + strip;
    while (*done < blocks) __nanosleep(100);
    __threadfence();
    fence_proxy_async_global();  // only now may the copy engine read
  }
};

// Copies the first strips: blockIdx.y is the strip, and blockIdx.x the part of its rows. The first block clears the
// flags.
extern "C" __global__ void __launch_bounds__(THREADS)
    copy_early(const Bits* from, Bits* to, int* flags, int n, int k, int pitch, int to_pitch) {
  ptx::grid_wait();
  if (blockIdx.x + blockIdx.y == 0)
    for (int i = threadIdx.x; i * Copy::STRIP < n; i += THREADS) flags[i] = 0;
  Copy{from, to, flags, n, k, pitch, to_pitch}.strip(blockIdx.y, blockIdx.x, gridDim.x);
}
