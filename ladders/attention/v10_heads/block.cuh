// Shared memory of a block: heads, and the barriers of their slots.
#pragma once
#include "part.cuh"

constexpr int WARPGROUPS = TILES + TAIL;  // that multiply
constexpr int Q_BYTES = Q_ROWS * 128, KEYS_BYTES = KEYS * 128, HEAD_BYTES = Q_BYTES + 2 * KEYS_BYTES;
constexpr int ZERO_BYTES = 1024;

template <bool VALUE>
struct Bool {  // as a type
  static constexpr bool value = VALUE;
};

struct Ring {  // a slot, and the parity of its phase
  int slot = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++slot == SLOTS) slot = 0, parity ^= 1;
  }
};

struct Barriers {
  ptx::mbarrier keys[SLOTS], values[SLOTS];  // queries and keys, or values, have come
  ptx::mbarrier empty[SLOTS], turn[TILES];
  long long out[SLOTS];  // where the output of the head begins

  __device__ __forceinline__ void init() {  // by one thread
    for (int i = 0; i < SLOTS; i++) {
      ptx::mbarrier_init(keys + i, 1);
      ptx::mbarrier_init(values + i, 1);
      ptx::mbarrier_init(empty + i, WARPGROUPS * 128);
    }
    for (int i = 0; i < TILES; i++) ptx::mbarrier_init(turn + i, 4);
    ptx::fence_proxy_async();
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

// Writes `rows` of a warp's 16 rows of o, times factors, to `out`, `pitch` pairs of halves apart. They go through the
// place of the queries, so that each thread can write 16 bytes.
__device__ __forceinline__ void put(const float (&o)[D / 8][4], const float (&factor)[2], char* place, unsigned* out,
                                    long long pitch, int rows) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < D / 8; i += 2) {
    const float *const x = o[i], *const y = o[i + 1];
    const unsigned both[4] = {
        ptx::pack_halves(x[0] * factor[0], x[1] * factor[0]), ptx::pack_halves(x[2] * factor[1], x[3] * factor[1]),
        ptx::pack_halves(y[0] * factor[0], y[1] * factor[0]), ptx::pack_halves(y[2] * factor[1], y[3] * factor[1])};
    const int row = lane % 16, chunk = i + lane / 16;
    ptx::stmatrix(place + row * 128 + (chunk ^ row % 8) * 16, both);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = lane / 8 + 4 * i, chunk = lane % 8;
    const uint4 piece = *reinterpret_cast<const uint4*>(place + row * 128 + (chunk ^ row % 8) * 16);
    if (row < rows) *reinterpret_cast<uint4*>(out + row * pitch + chunk * 4) = piece;
  }
}

// The same of at most 8 rows, without a place for them.
__device__ __forceinline__ void put_few(const float (&o)[D / 8][4], float factor, unsigned* out, long long pitch,
                                        int rows) {
  const int lane = threadIdx.x % 32;
  if (lane / 4 >= rows) return;
#pragma unroll
  for (int i = 0; i < D / 8; i++)
    out[lane / 4 * pitch + 4 * i + lane % 4] = ptx::pack_halves(o[i][0] * factor, o[i][1] * factor);
}
