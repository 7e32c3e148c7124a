// c (m,n) = a (m,k) b (k,n), row-major halves, in the usual way for Hopper: a producer warp, tensor copies into a ring
// of buffers, products of two warpgroups from shared memory, results through stmatrix and tensor copies. BN, STAGES and
// TYPE are macros, and so is WAITS: whether it waits for the data that it multiplies.
#include <mini_dnn/ptx.cuh>

#ifdef PTX_WGMMA
constexpr int BM = 128, BK = 64, WARPGROUPS = 2, GROUPS = BN / 8, LINE = 128;
constexpr int A_BYTES = BM * LINE, BOX_BYTES = BK * LINE, B_BYTES = BN / 64 * BOX_BYTES, OUT_BYTES = 2 * 16 * LINE;
constexpr int THREADS = 128 * WARPGROUPS + 32;

__device__ unsigned pack(float low, float high) {
  return ptx::TYPE::is_half ? ptx::pack_halves(low, high) : ptx::pack_bfloats(low, high);
}

struct Ring {
  int stage = 0, parity = 0;
  __device__ void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

// A warp's 16 rows, 64 columns at a time, through its own two chunks of shared memory in turn; `stored`: how many so
// far.
__device__ void store_tile(const ptx::TensorMap& map, unsigned char* chunks, const float (&d)[GROUPS][4], int row,
                           int column, int& stored) {
  const int lane = threadIdx.x % 32, line = lane % 16;
  for (int part = 0; part < BN / 64; part++, stored++) {
    unsigned char* const chunk = chunks + stored % 2 * 16 * LINE;
    if (lane == 0) ptx::bulk_wait_read<1>();
    __syncwarp();
    for (int i = 0; i < 8; i += 2) {
      const float* const x = d[part * 8 + i];
      const float* const y = d[part * 8 + i + 1];
      const unsigned matrices[4] = {pack(x[0], x[1]), pack(x[2], x[3]), pack(y[0], y[1]), pack(y[2], y[3])};
      ptx::stmatrix(chunk + line * LINE + ((i + lane / 16) ^ line % 8) * 16, matrices);
    }
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) {
      ptx::tensor_store(map, column + part * 64, row, chunk);
      ptx::bulk_commit();
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ ptx::TensorMap map_a, const __grid_constant__ ptx::TensorMap map_b,
         const __grid_constant__ ptx::TensorMap map_c, int m, int n, int k) {
  extern __shared__ unsigned char memory[];
  unsigned char* const a = memory + (-reinterpret_cast<size_t>(memory) & 1023);
  unsigned char* const b = a + STAGES * A_BYTES;
  unsigned char* const out = b + STAGES * B_BYTES;
  ptx::mbarrier* const full = reinterpret_cast<ptx::mbarrier*>(out + WARPGROUPS * 4 * OUT_BYTES);
  ptx::mbarrier* const empty = full + STAGES;
  const int columns = (n + BN - 1) / BN, tiles = (m + BM - 1) / BM * columns, steps = (k + BK - 1) / BK;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == WARPGROUPS * 128) {
    ptx::tensor_prefetch(map_a), ptx::tensor_prefetch(map_b), ptx::tensor_prefetch(map_c);
    for (int i = 0; i < STAGES; i++) ptx::mbarrier_init(full + i, 1), ptx::mbarrier_init(empty + i, WARPGROUPS);
    ptx::fence_proxy_async();
  }
  __syncthreads();
  ptx::grid_launch_dependents();

  Ring ring;
  if (warpgroup == WARPGROUPS) {
    if (threadIdx.x != WARPGROUPS * 128) return;
    ptx::grid_wait();
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
      for (int step = 0; step < steps; step++, ring.next()) {
        ptx::mbarrier* const ready = full + ring.stage;
        ptx::mbarrier_wait(empty + ring.stage, ring.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(ready, A_BYTES + B_BYTES);
        ptx::tensor_load(a + ring.stage * A_BYTES, map_a, step * BK, tile / columns * BM, ready);
        for (int j = 0; j < BN / 64; j++)
          ptx::tensor_load(b + ring.stage * B_BYTES + j * BOX_BYTES, map_b, tile % columns * BN + j * 64, step * BK,
                           ready);
      }
    return;
  }

  int stored = 0;
  unsigned char* const chunks = out + threadIdx.x / 32 * OUT_BYTES;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    float d[GROUPS][4];
    int last = 0;
    for (int step = 0; step < steps; step++, ring.next()) {
      if (WAITS) ptx::mbarrier_wait(full + ring.stage, ring.parity);
      const auto matrix_a = ptx::matrix_descriptor_128b(a + ring.stage * A_BYTES + warpgroup * 64 * LINE, 0, 8 * LINE);
      const auto matrix_b = ptx::matrix_descriptor_128b(b + ring.stage * B_BYTES, BOX_BYTES, 8 * LINE);
      ptx::wgmma_fence();
      for (int j = 0; j < BK / 16; j++)
        ptx::wgmma_m64k16<BN, ptx::TYPE, false, true>(d, matrix_a + j * (32 >> 4), matrix_b + j * (2048 >> 4),
                                                      step || j);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // the step before is over
      if (step && threadIdx.x % 128 == 0) ptx::mbarrier_arrive(empty + last);
      last = ring.stage;
    }
    ptx::wgmma_wait<0>(d);
    if (threadIdx.x % 128 == 0) ptx::mbarrier_arrive(empty + last);
    store_tile(map_c, chunks, d, tile / columns * BM + threadIdx.x / 32 * 16, tile % columns * BN, stored);
  }
  if (threadIdx.x % 32 == 0) ptx::bulk_wait_read<0>();
}
#endif
