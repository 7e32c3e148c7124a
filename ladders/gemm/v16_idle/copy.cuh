// Part of kernel.cu: the copy of b, whose rows start with lines of the cache.

#include "../v13_split/fence.cuh"

using lines::Bits;

// b is copied in strips of 256 columns, in the order in which tiles need them. A warp copies an item, ROWS rows of a
// strip, at a time. Bulk copies bring them to shared memory, from the multiple of 16 bytes before their first column
// on, and they are shifted in registers on their way out.
struct Copy {
  static constexpr int STRIP = 256, ROWS = 6, ROW_BYTES = (STRIP + 8) * 2;
  static constexpr int WARP_BYTES = ROWS * ROW_BYTES;  // of shared memory
  const Bits* from;
  Bits* to;
  int* flags;  // the number of items taken from the queue, and then, for each strip, of those that have been copied
  int n, k, pitch, to_pitch;

  __device__ __forceinline__ int items() const { return (k + ROWS - 1) / ROWS; }  // of a strip
  __device__ __forceinline__ int strips() const { return (n + STRIP - 1) / STRIP; }

  // An item of all strips, through `rows` of shared memory. All copies to it arrive at `arrived`, in this phase.
  template <class Meanwhile>
  __device__ __forceinline__ void copy(int item, char* rows, ptx::mbarrier* arrived, int parity,
                                       Meanwhile meanwhile) const {
    const int lane = threadIdx.x % 32, strip = item / items(), first = (item - strip * items()) * ROWS;
    const long long end = ((long long)(k - 1) * pitch + n) / 8 * 8;  // of whole pieces of 16 bytes
    auto place = [&](int row, int column) { return (long long)row * pitch + column; };
    if (lane < ROWS) {
      const long long at = place(first + lane, strip * STRIP), near = at / 8 * 8;
      const int pieces = (int(at - near) + min(STRIP, n - strip * STRIP) + 7) / 8;
      const int count = first + lane < k ? int(max(min(8ll * pieces, end - near), 0ll)) : 0;  // of elements
      ptx::mbarrier_arrive_expect_tx(arrived, count * 2);
      if (count > 0) ptx::bulk_load(rows + lane * ROW_BYTES, from + near, count * 2, arrived);
    }
    __syncwarp();
    meanwhile();
    ptx::mbarrier_wait(arrived, parity);
    const int column = strip * STRIP + lane * 8, count = min(n - column, 8);
#pragma unroll 1
    for (int i = 0; i < ROWS && first + i < k && count > 0; i++) {
      const long long at = place(first + i, column);
      const int shift = int(at) & 7;
      const auto* const eight = reinterpret_cast<const uint4*>(rows + i * ROW_BYTES) + lane;
      const lines::Pieces found = lines::read(eight, shift, int(min((long long)count, end - at)));
      Bits* const aligned = to + (long long)(first + i) * to_pitch + column;
      *reinterpret_cast<uint4*>(aligned) = lines::aligned(found, shift, count);
      lines::add_last(aligned, from, at, count, end);
    }
    __syncwarp();  // all lanes have read the rows
  }

  // Items of strips from `early` on. They come from a queue: whichever blocks run, one of them copies what another one
  // waits for.
  __device__ __forceinline__ void late(int early, char* rows, ptx::mbarrier* arrived) const {
    const int lane = threadIdx.x % 32, all = strips() * items();
    int next = 0;
    auto take = [&] {
      if (lane == 0) next = early * items() + atomicAdd(flags, 1);
      next = __shfl_sync(~0u, next, 0);
    };
    take();
    for (int parity = 0; next < all; parity ^= 1) {
      const int item = next;
      copy(item, rows, arrived, parity, take);
      fence_proxy_async_global();
      __syncwarp();
      if (lane != 0) continue;
      __threadfence();
      atomicAdd(flags + 1 + item / items(), 1);
    }
  }

  // Until columns before `last` are there, if copies of strips from `early` on run beside the product.
  __device__ __forceinline__ void wait(int last, int early) const {
    const int strip = (min(last, n) - 1) / STRIP;
    if (strip < early) return;
    const volatile int* const done = flags + 1 + strip;
    while (*done < items()) __nanosleep(100);
    __threadfence();
    fence_proxy_async_global();  // only now may the copy engine read
  }
};

// Copies the first strips, an item for each warp, and clears the flags.
extern "C" __global__ void __launch_bounds__(THREADS)
    copy_early(const Bits* from, Bits* to, int* flags, int n, int k, int pitch, int to_pitch, int early) {
  constexpr int WARPS = THREADS / 32;
  __shared__ __align__(128) char rows[WARPS][Copy::WARP_BYTES];
  __shared__ ptx::mbarrier arrived[WARPS];
  const Copy copy{from, to, flags, n, k, pitch, to_pitch};
  const int warp = threadIdx.x / 32, item = blockIdx.x * WARPS + warp;
  if (threadIdx.x % 32 == 0) {
    ptx::mbarrier_init(arrived + warp, Copy::ROWS);
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();
  }
  __syncwarp();
  ptx::grid_wait();
  if (blockIdx.x == 0)
    for (int i = threadIdx.x; i <= copy.strips(); i += THREADS) flags[i] = 0;
  if (item < early * copy.items()) copy.copy(item, rows[warp], arrived + warp, 0, [] {});
}
