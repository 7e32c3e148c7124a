// Part of kernel.cu: the copy of b, whose rows start with lines of the cache.

#include "../v13_split/fence.cuh"
#include "../v8_final/packed.cuh"

using lines::Bits;

// b is copied in strips of 256 columns, in the order in which tiles need them. A warp copies an item, ROWS rows of a
// strip, at a time. They are 8 rows apart, so all of them start at the same distance from a multiple of 16 bytes. Bulk
// copies bring them to shared memory, from that multiple on, and they are shifted in registers on their way out.
struct Copy {
  static constexpr int STRIP = 256, ROWS = 6, ROW_BYTES = (STRIP + 8) * 2;
  static constexpr int WARP_BYTES = ROWS * ROW_BYTES;  // of shared memory
  const Bits* from;
  Bits* to;
  int* flags;  // the number of items taken from the queue, and then, for each strip, of those that have been copied
  int n, k, pitch, to_pitch;

  __device__ __forceinline__ int items() const { return (k + 8 * ROWS - 1) / (8 * ROWS) * 8; }  // of a strip
  __device__ __forceinline__ int strips() const { return (n + STRIP - 1) / STRIP; }

  // Rows first, first + 8, ... of a strip, through `staged`. All bulk copies arrive at `arrived`, in this phase.
  template <class Meanwhile>
  __device__ __forceinline__ void copy(int strip, int first, char* staged, ptx::mbarrier* arrived, int parity,
                                       Meanwhile meanwhile) const {
    const int lane = threadIdx.x % 32, left = strip * STRIP, column = left + lane * 8;
    const long long end = ((long long)(k - 1) * pitch + n) / 8 * 8;  // of whole pieces of 16 bytes
    const int shift = int((long long)first * pitch + left) & 7;
    if (lane < ROWS) {
      const int row = first + 8 * lane, pieces = (shift + min(STRIP, n - left) + 7) / 8;
      const long long near = (long long)row * pitch + left - shift;
      const int count = row < k ? int(max(min(8ll * pieces, end - near), 0ll)) : 0;  // of elements
      ptx::mbarrier_arrive_expect_tx(arrived, count * 2);
      if (count > 0) ptx::bulk_load(staged + lane * ROW_BYTES, from + near, count * 2, arrived);
    }
    __syncwarp();
    meanwhile();
    ptx::mbarrier_wait(arrived, parity);
    const auto* eight = reinterpret_cast<const uint4*>(staged) + lane;
    Bits* place = to + (long long)first * to_pitch + column;
    if (left + STRIP <= n && first + 8 * ROWS - 8 < k - 1) {  // whole rows, and not the last one of b
#pragma unroll 2
      for (int i = 0; i < ROWS; i++, eight += ROW_BYTES / 16, place += 8ll * to_pitch)
        *reinterpret_cast<uint4*>(place) = lines::aligned(lines::read(eight, shift, 8), shift, 8);
    } else {
#pragma unroll 1
      for (int row = first; row < first + 8 * ROWS; row += 8, eight += ROW_BYTES / 16, place += 8ll * to_pitch) {
        const int count = min(n - column, 8);
        if (row >= k || count <= 0) break;
        const long long at = (long long)row * pitch + column;
        const lines::Pieces found = lines::read(eight, shift, int(min((long long)count, end - at)));
        *reinterpret_cast<uint4*>(place) = lines::aligned(found, shift, count);
        lines::add_last(place, from, at, count, end);
      }
    }
    __syncwarp();  // all lanes have read the rows
  }

  // Items of strips from `early` on. They come from a queue: whichever blocks run, one of them copies what another one
  // waits for.
  __device__ __forceinline__ void late(int early, char* staged, ptx::mbarrier* arrived) const {
    const int lane = threadIdx.x % 32, each = items(), all = strips() * each;
    int next = 0;
    auto take = [&] {
      if (lane == 0) next = early * each + atomicAdd(flags, 1);
      next = __shfl_sync(~0u, next, 0);
    };
    take();
    for (int parity = 0; next < all; parity ^= 1) {
      const int strip = next / each, item = next - strip * each;
      copy(strip, item / 8 * (8 * ROWS) + item % 8, staged, arrived, parity, take);
      fence_proxy_async_global();
      __syncwarp();
      if (lane != 0) continue;
      __threadfence();
      atomicAdd(flags + 1 + strip, 1);
    }
  }

  // Waits until all strips with columns from `first` to before `last` have been copied. They may be complete in any
  // order. Strips before `early` were copied before the product.
  __device__ __forceinline__ void wait(int first, int last, int early) const {
    const int strips = (min(last, n) - 1) / STRIP + 1;
    if (strips <= early) return;
    for (int strip = max(early, first / STRIP); strip < strips; strip++) {
      const volatile int* const done = flags + 1 + strip;
      while (*done < items()) __nanosleep(100);
    }
    __threadfence();
    fence_proxy_async_global();  // only now may the copy engine read
  }
};

// Copies the first columns, and clears the flags.
extern "C" __global__ void __launch_bounds__(COPIERS)
    copy_early(const Bits* __restrict__ from, uint4* to, int* flags, int count, int columns, int k, int pitch,
               int to_pitch) {
  ptx::grid_wait();
  if (blockIdx.x == 0)
    for (int i = threadIdx.x; i < count; i += COPIERS) flags[i] = 0;
  Packed{from, to, k, columns, pitch, to_pitch}.copy(blockIdx.x);
}
