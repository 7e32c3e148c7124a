// Shared memory of a block: heads, the barriers of their slots, and what the few queries need.
#pragma once
#include "part.cuh"

constexpr int WARPGROUPS = TILES + TAIL;  // that multiply
constexpr int TILE_BYTES = 64 * 128, FEW = 8;
constexpr int Q_BYTES = TILES * TILE_BYTES + TAIL * FEW * 128, KEYS_BYTES = KEYS * 128;
constexpr int HEAD_BYTES = Q_BYTES + 2 * KEYS_BYTES;
constexpr int ZERO_BYTES = 1024, BARRIERS_BYTES = 256;
constexpr int SECOND = KEYS - FIRST;  // keys of the second part

struct Ring {  // a slot, and the parity of its phase
  int slot = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++slot == SLOTS) slot = 0, parity ^= 1;
  }
};

struct Place {  // of a head in the tensor maps of the output and, without the part, of the inputs
  int x, z;
};

struct Barriers {
  ptx::mbarrier queries[SLOTS][TILES + 1];  // of each tile, and the few; those of tile 0 come with the first keys
  ptx::mbarrier values[SLOTS];              // the values and the other keys have come
  ptx::mbarrier empty[SLOTS], turn[TILES], few;
  Place place[SLOTS];

  __device__ __forceinline__ void init() {  // by one thread
    for (int i = 0; i < SLOTS; i++) {
      for (int j = 0; j <= TILES; j++) ptx::mbarrier_init(queries[i] + j, 1);
      ptx::mbarrier_init(values + i, 1);
      ptx::mbarrier_init(empty + i, WARPGROUPS * 128);
    }
    for (int i = 0; i < TILES; i++) ptx::mbarrier_init(turn + i, 4);
    ptx::mbarrier_init(&few, 128);
    ptx::fence_proxy_async();
  }
};
static_assert(sizeof(Barriers) <= BARRIERS_BYTES, "the place for it");

struct Block {         // what all roles of warps know
  char* const memory;  // slots: queries, and results in their place; keys; values. Then zeros, barriers, and powers
  const int T, heads, each, part;
  const float scale;

  __device__ __forceinline__ char* slot(int i) const { return memory + i * HEAD_BYTES; }
  __device__ __forceinline__ char* zeros() const { return memory + SLOTS * HEAD_BYTES; }
  __device__ __forceinline__ char* powers() const { return zeros() + ZERO_BYTES + BARRIERS_BYTES; }
  __device__ __forceinline__ Barriers& barriers() const { return *reinterpret_cast<Barriers*>(zeros() + ZERO_BYTES); }
  // Whether the slot of a head is filled again.
  __device__ __forceinline__ bool is_refilled(int head) const { return head + SLOTS * (int)gridDim.x < heads; }
  // Waits for the queries of a tile, or the few, and the first keys.
  __device__ __forceinline__ void wait_queries(const Ring& ring, int tile) const {
    ptx::mbarrier_wait(barriers().queries[ring.slot], ring.parity);
    if (tile > 0) ptx::mbarrier_wait(barriers().queries[ring.slot] + tile, ring.parity);
  }
  __device__ __forceinline__ void wait_values(const Ring& ring) const {
    ptx::mbarrier_wait(barriers().values + ring.slot, ring.parity);
  }
  // The last 16 values of a product, of which 8 are zeros elsewhere.
  __device__ __forceinline__ unsigned long long last_values(int i) const {
    const char* const last = slot(i) + Q_BYTES + KEYS_BYTES + KEYS / 16 * 2048;
    return ptx::matrix_descriptor_128b(last, KEYS_BYTES, zeros() - last);
  }
};

// The factors of a thread's rows of the output, from its sums of powers.
__device__ __forceinline__ void invert(float (&sum)[2]) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
    sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
    sum[r] = __fdividef(1.0f, sum[r]);
  }
}

// Writes a warp's 16 rows of o, times factors, to `rows` in shared memory, in the layout of the tensor map of o.
__device__ __forceinline__ void put(const float (&o)[D / 8][4], const float (&factor)[2], char* rows) {
  const int lane = threadIdx.x % 32, row = lane % 16;
#pragma unroll
  for (int i = 0; i < D / 8; i += 2) {
    const float *const x = o[i], *const y = o[i + 1];
    const unsigned both[4] = {
        ptx::pack_halves(x[0] * factor[0], x[1] * factor[0]), ptx::pack_halves(x[2] * factor[1], x[3] * factor[1]),
        ptx::pack_halves(y[0] * factor[0], y[1] * factor[0]), ptx::pack_halves(y[2] * factor[1], y[3] * factor[1])};
    ptx::stmatrix(rows + row * 128 + ((i + lane / 16) ^ row % 8) * 16, both);
  }
}
