// gemm/w2_loads
#include <mini_dnn/lines.cuh>
constexpr int STAGE_BYTES = LINES * 128;
extern "C" __global__ void __launch_bounds__(128, 1)
    loads(const __grid_constant__ ptx::TensorMap a, const half* p, float* c, int rows, int k, int pitch, int at0, int turns) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ ptx::mbarrier full[STAGES];
  const int row = int(blockIdx.x / SHARE * LINES % rows), steps = k / 64;
  const int rank = SHARE > 1 ? ptx::cluster_rank() : 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) ptx::mbarrier_init(full + i, 1);
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();
  }
  __syncthreads();
  if (SHARE > 1) ptx::cluster_sync();
  const int all = steps * turns;
  if (MODE == 0) {
    if (threadIdx.x == 0) {
      int at = 0;
      auto load = [&](int i) {
        ptx::mbarrier* f = full + i % STAGES;
        ptx::mbarrier_arrive_expect_tx(f, STAGE_BYTES);
        const int half = LINES / SHARE;
        if constexpr (SHARE > 1)
          ptx::tensor_load_multicast(memory + i % STAGES * STAGE_BYTES + rank * half * 128, a, at0 + at, row + rank * half, 0, f, 3);
        else
          ptx::tensor_load(memory + i % STAGES * STAGE_BYTES, a, at0 + at, row, 0, f);
        at += 64;
        if (at == steps * 64) at = 0;
      };
      for (int i = 0; i < STAGES && i < all; i++) load(i);
      for (int i = 0; i < all; i++) {
        ptx::mbarrier_wait(full + i % STAGES, i / STAGES % 2);
        if (i + STAGES < all) load(i + STAGES);
      }
    }
  } else {
    constexpr int WIDE = MODE == 1 ? 64 : 128;  // elements of a line in a step
    constexpr int EACH = STAGE_BYTES / 16 / 128, PER = WIDE / 8, DOWN = 128 / PER;
    const int x = threadIdx.x % PER * 8, y = threadIdx.x / PER;
    auto load = [&](int i) {
      const int at = int((long long)i * WIDE % (steps * 64));
      const half* from = p + (long long)(row + y) * pitch + at0 + at + x;
      const unsigned to = ptx::shared_address(memory + i % STAGES * STAGE_BYTES) + threadIdx.x * 16;
#pragma unroll
      for (int j = 0; j < EACH; j++)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + j * 2048), "l"(from + (long long)j * DOWN * pitch) : "memory");
      asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int i = 0; i < STAGES - 1; i++) load(i);
    for (int i = 0; i < all; i++) {
      asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
      if (i + STAGES - 1 < all) load(i + STAGES - 1); else asm volatile("cp.async.commit_group;" ::: "memory");
    }
  }
  __syncthreads();
  if (SHARE > 1) ptx::cluster_sync();
  if (turns < 0) c[0] = memory[threadIdx.x];
}
