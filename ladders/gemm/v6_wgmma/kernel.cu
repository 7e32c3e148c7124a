// gemm/v6_wgmma: Hopper's own instructions. The copy engine loads tiles, and the tensor cores read them from shared
// memory.
//
// Idea      One thread requests a whole tile (tensor copy): the engine computes the addresses, writes zeros beyond the
//           matrix, swizzles, and counts the arrived bytes on an mbarrier. wgmma multiplies 64 x 16 by 16 x 128 in one
//           instruction of four warps, directly from shared memory. It runs asynchronously until a thread waits for it.
//           No operand passes through registers, and no thread computes the address of one.
// Layout    a (batch,m,k), b (batch,k,n), c0 and c (batch,m,n), row by row; a and b also transposed; pitches from line
//           to line; a and b in half or bfloat16, c0 and c half, bfloat16 or float, sums in float. Shared memory holds
//           STAGES tiles of each operand, of 64 terms of the sums. Tiles have the order of their operands, in rows of
//           128 bytes: a row of `a` has 64 values of k. If the elements of a row are not consecutive in k, a box is 64
//           rows of a or columns of b wide, and boxes follow each other.
// Mapping   block -> TILE x TILE of c, blockIdx.y -> entry of the batch; two warpgroups of 64 rows each, a warp has 16.
// Roofline  m = n = k = 4096: 137 GFLOP, 0.14 ms at 990 TFLOP/s, in practice 0.175 because power lowers the clock. Each
//           operand is loaded 32 times from L2, 2.1 GB, 0.21 ms at 10 TB/s: now L2 is the limit.
// Gain      over gemm/v5_mma_async: a factor of 1.2, to 0.25 ms, because mma.sync reaches at most 600 TFLOP/s.
// Limits    elements of 16 bits; needs sm_90a. Lines of a and b start at multiples of 16 bytes, as the engine requires.
// Hazards   A stage is filled when the phase of its mbarrier is complete. It may be filled again when both warpgroups
//           have read it, which __syncthreads waits for. The sums may be read after the wait for their products.
// Source    PTX ISA, "cp.async.bulk.tensor", "Asynchronous Warpgroup Level Matrix Instructions".
#include <mini_dnn/sums.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

constexpr int TILE_BYTES = TILE * TILE_K * 2, BOX_BYTES = 64 * TILE_K * 2;  // a box: 64 rows or columns
static_assert(TILE == 128 && TILE_K == 64 && THREADS == 256, "a warpgroup has 64 rows; rows of tiles have 128 bytes");

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm(const __grid_constant__ ptx::TensorMap a, const __grid_constant__ ptx::TensorMap b, const Out* c0, Out* c,
         int m, int n, int k, int c_pitch, float alpha, float beta) {
  extern __shared__ __align__(1024) char tiles[];  // STAGES of a tile of a and one of b
  __shared__ ptx::mbarrier full[STAGES];
  const int columns = (n + TILE - 1) / TILE, steps = (k + TILE_K - 1) / TILE_K;
  const int row = blockIdx.x / columns * TILE, column = blockIdx.x % columns * TILE, entry = blockIdx.y;
  const int warpgroup = threadIdx.x / 128;

  auto fetch = [&](int step) {
    ptx::mbarrier* const ready = full + step % STAGES;
    char *const to_a = tiles + step % STAGES * 2 * TILE_BYTES, *const to_b = to_a + TILE_BYTES;
    ptx::mbarrier_arrive_expect_tx(ready, 2 * TILE_BYTES);
    for (int box = 0; box < 2; box++) {
      const int beside_a = row + 64 * box, beside_b = column + 64 * box, at = step * TILE_K;
      ptx::tensor_load(to_a + box * BOX_BYTES, a, A_TURNED ? beside_a : at, A_TURNED ? at : beside_a, entry, ready);
      ptx::tensor_load(to_b + box * BOX_BYTES, b, B_TURNED ? at : beside_b, B_TURNED ? beside_b : at, entry, ready);
    }
  };

  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) ptx::mbarrier_init(full + i, 1);
    ptx::fence_proxy_async();  // the copy engine sees the mbarriers
    for (int step = 0; step < min(STAGES, steps); step++) fetch(step);
  }
  __syncthreads();

  float d[TILE / 8][4];
  for (int step = 0; step < steps; step++) {
    const char *const a_tile = tiles + step % STAGES * 2 * TILE_BYTES, *const b_tile = a_tile + TILE_BYTES;
    const auto left = ptx::matrix_descriptor_128b(a_tile + warpgroup * BOX_BYTES, BOX_BYTES, 1024);
    const auto right = ptx::matrix_descriptor_128b(b_tile, BOX_BYTES, 1024);
    constexpr int a_next = A_TURNED ? 2048 : 32, b_next = B_TURNED ? 32 : 2048;  // bytes to the next 16 of k
    ptx::mbarrier_wait(full + step % STAGES, step / STAGES % 2);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < TILE_K / 16; i++)
      ptx::wgmma_m64k16<TILE, Operand, A_TURNED, !B_TURNED>(d, left + i * (a_next >> 4), right + i * (b_next >> 4),
                                                            step > 0 || i > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d);
    __syncthreads();  // both warpgroups have read this stage
    if (threadIdx.x == 0 && step + STAGES < steps) fetch(step + STAGES);
  }

  const long long of_entry = (long long)entry * m * c_pitch;
  const sums::Matrix<Out> to{c0 + of_entry, c + of_entry, m, n, c_pitch, alpha, beta};
  sums::store<C_PAIRS>(d, to, row + threadIdx.x / 32 * 16, column);
}
