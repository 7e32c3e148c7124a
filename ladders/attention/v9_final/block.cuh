// Data that the warps of a block share: items, rings, and the progress of each role.
#pragma once
#include "rows.cuh"
#include "tail.cuh"

// Where boxes of q, k, v and o begin: heads follow each other along x or along z of their tensor maps.
struct Heads {
  int each, part;  // heads per entry of z; distance from q to k, and from k to v, along x
  __device__ __forceinline__ int x(int head) const { return head % each * D; }
  __device__ __forceinline__ int z(int head) const { return head / each; }
};

constexpr int PARTS = D > 64 ? D / 64 : 1;            // adjacent boxes of 64 columns
constexpr int Q_PART_BYTES = GROUP_COUNT * 64 * 128;  // of 64 columns of an item's queries
constexpr int KEYS_BYTES = PARTS * BLOCK * 128, QUERIES_BYTES = PARTS * Q_PART_BYTES;
constexpr int READERS = GROUP_COUNT * 4 + (TAIL ? TAIL_WARPS : 0);  // warps
constexpr int TAIL_BYTES = TAIL ? FEW * 128 : 0;

template <int SIZE>
struct Ring {  // a stage of a ring, and the parity of its phase
  int stage = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == SIZE) stage = 0, parity ^= 1;
  }
};

// An item: GROUP_COUNT tiles of 64 queries of a head, one for each warpgroup. A head's last item may have fewer tiles,
// and it includes the head's tail. The items of a head change places from round to round, so that no block gets only
// last items.
struct Items {
  int tiles, of_head, count;
  __device__ __forceinline__ Items(int T, int heads) {
    tiles = TAIL ? T / 64 : (T + 63) / 64;
    of_head = (tiles + GROUP_COUNT - 1) / GROUP_COUNT;
    count = heads * of_head;
  }
  __device__ __forceinline__ int head(int item) const { return item / of_head; }
  __device__ __forceinline__ int first(int item) const {
    return (item % of_head + item / of_head * of_head / (int)gridDim.x) % of_head * GROUP_COUNT;
  }
  __device__ __forceinline__ int groups(int item) const { return min(GROUP_COUNT, tiles - first(item)); }
  __device__ __forceinline__ bool tail(int item) const { return TAIL && first(item) + GROUP_COUNT >= tiles; }
};

struct Item {  // computed by the producer, so that no other warp divides
  int x, z;    // the position of its head
  int packed;  // its first tile and the number of its tiles, 0 at the end
  static_assert(GROUP_COUNT < 4, "the number of tiles has two bits");
  __device__ __forceinline__ static int pack(int first, int tiles) { return first << 2 | tiles; }
  __device__ __forceinline__ static int first(int packed) { return packed >> 2; }
  __device__ __forceinline__ static int tiles(int packed) { return packed & 3; }
};

// A number that the producer has written, for all lanes of a warp. Only the lane that arrives at mbarriers reads it.
__device__ __forceinline__ int read_by_one(const volatile int& number) {
  return __shfl_sync(~0u, threadIdx.x % 32 == 0 ? number : 0, 0);
}

template <int N>
struct Keys {  // of a block, as a type
  static constexpr int count = N;
};

struct Barriers {
  ptx::mbarrier given, taken;  // states of the tail
  ptx::mbarrier full[STAGES], empty[STAGES], q_full[Q_STAGES], q_empty[Q_STAGES], turn[GROUP_COUNT];

  __device__ __forceinline__ void init() {  // by one thread
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, READERS);
    }
    for (int i = 0; i < Q_STAGES; i++) {
      ptx::mbarrier_init(q_full + i, 1);
      ptx::mbarrier_init(q_empty + i, READERS);
    }
    for (int i = 0; i < GROUP_COUNT; i++) ptx::mbarrier_init(turn + i, 4);
    ptx::mbarrier_init(&given, (TAIL_WARPS - 1) * 32);  // all lanes arrive
    ptx::mbarrier_init(&taken, 32);
    ptx::fence_proxy_async();
  }
};

// The number of blocks of keys that the queries of the first `tiles` tiles use.
__device__ __forceinline__ int blocks_for(int T, int tiles) {
  const int keys = CAUSAL ? min(T, tiles * 64) : T;
  return (keys + BLOCK - 1) / BLOCK;
}

// What the warps of a block share, whatever their roles.
struct Block {
  const Items items;
  const Heads lie;
  char *const memory, *const queries, *const few;  // keys and values; queries; queries and states of the tail
  Barriers& barriers;
  Item* const told;
  const int T;
  const float scale;

  __device__ __forceinline__ char* keys(int stage) const { return memory + stage * 2 * KEYS_BYTES; }
  __device__ __forceinline__ char* values(int stage) const { return keys(stage) + KEYS_BYTES; }
};
