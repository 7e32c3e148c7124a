// Part of kernel.cu: the copy of b, whose rows start with lines of the cache.

#include "../v13_split/fence.cuh"

using lines::Bits;

// b is copied in strips of 256 columns, in the order in which tiles need them. A warp has GROUP rows of a strip in each
// place of its ring, RING groups in all. Bulk copies bring them to shared memory from the multiple of 16 bytes before
// their first column on. They are shifted in registers on their way out.
struct Copy {
  static constexpr int STRIP = 256, WARPS = THREADS / 32, GROUP = 8, RING = 4;
  static constexpr int ROW_BYTES = (STRIP + 8) * 2, GROUP_BYTES = GROUP * ROW_BYTES;
  const Bits* from;
  Bits* to;
  int* flags;  // for each strip, the number of blocks that have copied their part of it
  int n, k, pitch, to_pitch;

  // The part of block `rank` of `blocks` of strips from `first` to before `last`. `done(strip)` is called after each.
  template <class Done>
  __device__ __forceinline__ void strips(char* memory, int first, int last, int rank, int blocks, Done done) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, step = WARPS * blocks;
    const int turns = (k + GROUP * step - 1) / (GROUP * step);  // of a warp, for each strip
    const long long end = ((long long)(k - 1) * pitch + n) / 8 * 8;  // of whole pieces of 16 bytes
    char* const ring = memory + warp * RING * GROUP_BYTES;
    ptx::mbarrier* const arrived =
        reinterpret_cast<ptx::mbarrier*>(memory + WARPS * RING * GROUP_BYTES) + warp * RING;
    if (lane == 0) {
      for (int i = 0; i < RING; i++) ptx::mbarrier_init(arrived + i, GROUP);
      ptx::fence_mbarrier_init();
      ptx::fence_proxy_async();
    }
    __syncwarp();
    // All rows of a warp start at the same distance from a multiple of 16 bytes, as `step` is a multiple of 8.
    const int own = rank * WARPS + warp, shift = int((long long)own * pitch) & 7;
    auto row_of = [&](int turn, int i) { return own + (turn % turns * GROUP + i) * step; };
    auto column_of = [&](int turn) { return (first + turn / turns) * STRIP; };
    auto load = [&](int turn) {  // a row for each lane
      if (lane >= GROUP || turn >= (last - first) * turns) return;
      const int row = row_of(turn, lane), column = column_of(turn);
      const long long at = (long long)row * pitch + column - shift;
      const int pieces = (shift + min(STRIP, n - column) + 7) / 8;
      const int count = row < k ? int(max(min(8ll * pieces, end - at), 0ll)) : 0;  // of elements
      ptx::mbarrier_arrive_expect_tx(arrived + turn % RING, count * 2);
      if (count > 0)
        ptx::bulk_load(ring + turn % RING * GROUP_BYTES + lane * ROW_BYTES, from + at, count * 2,
                       arrived + turn % RING);
    };
    // Writes a group of rows. If it is `whole`, they end in none of its pieces, and it does not have the last row.
    auto write = [&](int turn, auto whole) {
      constexpr bool is_whole = decltype(whole)::value;
      const int column = column_of(turn) + lane * 8, count = is_whole ? 8 : min(n - column, 8);
      const auto* eight = reinterpret_cast<const uint4*>(ring + turn % RING * GROUP_BYTES) + lane;
      int row = row_of(turn, 0);
      Bits* place = to + (long long)row * to_pitch + column;
#pragma unroll
      for (int i = 0; i < GROUP; i++, row += step, place += (long long)step * to_pitch, eight += ROW_BYTES / 16) {
        if (!is_whole && (count <= 0 || row >= k)) break;
        const long long at = (long long)row * pitch + column;
        const int there = is_whole ? 8 : int(min((long long)count, end - at));
        *reinterpret_cast<uint4*>(place) = lines::aligned(lines::read(eight, shift, there), shift, count);
        if (!is_whole) lines::add_last(place, from, at, count, end);
      }
    };
    for (int turn = 0; turn < RING; turn++) load(turn);
    for (int turn = 0; turn < (last - first) * turns; turn++) {
      ptx::mbarrier_wait(arrived + turn % RING, turn / RING % 2);
      if (column_of(turn) + STRIP <= n && row_of(turn, GROUP) < k)
        write(turn, std::true_type());
      else
        write(turn, std::false_type());
      __syncwarp();  // all lanes have read this place of the ring
      load(turn + RING);
      if (turn % turns == turns - 1) done(first + turn / turns);
    }
  }

  // Until columns before `last` are there, if copies of strips from `early` on run beside the product.
  __device__ __forceinline__ void wait(int last, int early, int blocks) const {
    const int strip = (min(last, n) - 1) / STRIP;
    if (strip < early) return;
    const volatile int* const done = flags + strip;
    while (*done < blocks) __nanosleep(100);
    __threadfence();
    fence_proxy_async_global();  // only now may the copy engine read
  }
};

// Copies the first strips, and clears the flags.
extern "C" __global__ void __launch_bounds__(THREADS)
    copy_early(const Bits* from, Bits* to, int* flags, int n, int k, int pitch, int to_pitch, int early) {
  extern __shared__ __align__(1024) char memory[];
  const Copy copy{from, to, flags, n, k, pitch, to_pitch};
  ptx::grid_wait();
  if (blockIdx.x == 0)
    for (int i = threadIdx.x; i * Copy::STRIP < n; i += THREADS) flags[i] = 0;
  copy.strips(memory, 0, early, blockIdx.x, gridDim.x, [](int) {});
}
