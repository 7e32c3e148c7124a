// Part of kernel.cu: the sums of a tile.

struct Stage {  // a stage of the ring, and the parity of its phase
  int index = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++index == STAGES) index = 0, parity ^= 1;
  }
};

// What all tiles of a block share.
struct Ring {
  char* memory;
  ptx::mbarrier *full, *empty;
  __device__ __forceinline__ char* a(int stage) const { return memory + stage * STAGE_BYTES; }
  __device__ __forceinline__ char* b(int stage) const { return a(stage) + A_BYTES; }
};

// Starts the three products of a stage, 32 k. They replace d or, with `accumulate`, are added to it.
template <int groups>
__device__ __forceinline__ void multiply(float (&d)[groups][4], const char* a, const char* b, bool accumulate) {
  constexpr int a_low = A_LINES ? BOX_BYTES / 2 : 64, a_next = A_LINES ? 2048 : 32;  // bytes to low, to the next 16 k
  constexpr int b_low = B_LINES ? BOX_BYTES / 2 : 64, b_next = B_LINES ? 2048 : 32;
  const auto left = ptx::matrix_descriptor_128b(a, BOX_BYTES, 1024);
  const auto right = ptx::matrix_descriptor_128b(b, BOX_BYTES, 1024);
  ptx::wgmma_fence();
#pragma unroll
  for (int product = 0; product < 3; product++)  // the small ones first
#pragma unroll
    for (int i = 0; i < CHUNK / 16; i++) {
      const int from_a = i * a_next + (product == 0 ? a_low : 0), from_b = i * b_next + (product == 1 ? b_low : 0);
      ptx::wgmma_m64k16<8 * groups, ptx::Half, A_LINES, B_LINES>(d, left + (from_a >> 4), right + (from_b >> 4),
                                                                 accumulate || product > 0 || i > 0);
    }
}

// Adds the sums of a tile to total. They still have the factors of their lines.
template <int groups>
__device__ __forceinline__ void sum_up(float (&total)[groups][4], const Ring& ring, Stage& stage, int chunks,
                                       int warpgroup) {
  const int lane = threadIdx.x % 32;
  float d[groups][4];
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; chunk += 2) {
    const int first = stage.index;
#pragma unroll
    for (int i = 0; i < 2; i++, stage.next()) {
      ptx::mbarrier_wait(ring.full + stage.index, stage.parity);
      multiply(d, ring.a(stage.index) + warpgroup * BOX_BYTES, ring.b(stage.index), i > 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d);
    if (lane == 0) {
      ptx::mbarrier_arrive(ring.empty + first);
      ptx::mbarrier_arrive(ring.empty + (first + 1) % STAGES);
    }
#pragma unroll
    for (int i = 0; i < groups; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) total[i][j] += d[i][j];  // rounded, not truncated
  }
}
