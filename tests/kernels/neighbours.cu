// A cluster whose blocks use nearly all shared memory that there is, so that the memory of another block may follow.
#include <mini_dnn/ptx.cuh>

// Each block loads its part of a buffer for all blocks, again and again.
extern "C" __global__ void fills(const float* x, float* y, int size, int rounds) {
  extern __shared__ __align__(128) float memory[];
  __shared__ ptx::mbarrier full;
  const unsigned rank = ptx::cluster_rank(), all = (1 << size) - 1;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init();
  }
  float sum = 0;
  for (int round = 0; round < rounds; round++) {
    if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(&full, 128 * size);
    ptx::cluster_sync();  // all blocks have read what the round before brought
    if (threadIdx.x == 0) ptx::bulk_load_multicast(memory + 32 * rank, x + 32 * rank, 128, &full, all);
    ptx::mbarrier_wait(&full, round % 2);
    for (int i = 0; i < size; i++) sum += memory[32 * i + threadIdx.x];
  }
  y[blockIdx.x * 32 + threadIdx.x] = sum;
  ptx::cluster_sync();  // no block leaves while others still write to it
}
