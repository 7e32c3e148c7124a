// Copies of the pixels for windows of a convolution.
#include <mini_dnn/ptx_im2col.cuh>

#ifdef PTX_BULK
// The content of shared memory after a copy of `bytes`, for each place (n, h, w, r, s) of `places`; a block for each.
extern "C" __global__ void load(const __grid_constant__ ptx::TensorMap map, const int* places, unsigned* images, int c,
                                int bytes) {
  extern __shared__ __align__(1024) unsigned memory[];
  __shared__ ptx::mbarrier full;
  const int* const at = places + 5 * blockIdx.x;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_proxy_async();
    ptx::tensor_prefetch(map);
    ptx::mbarrier_arrive_expect_tx(&full, bytes);
    ptx::tensor_load_windows(memory, map, c, at[2], at[1], at[0], &full, at[4], at[3]);
  }
  __syncthreads();  // the mbarrier is there
  ptx::mbarrier_wait(&full, 0);
  for (int i = threadIdx.x; i < bytes / 4; i += blockDim.x) images[blockIdx.x * (bytes / 4) + i] = memory[i];
}
#endif
