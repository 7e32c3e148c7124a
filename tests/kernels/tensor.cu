// Copies of boxes of tensor maps.
#include <mini_dnn/ptx.cuh>

#ifdef PTX_BULK
extern __shared__ unsigned char memory[];

__device__ unsigned char* aligned() { return memory + (-reinterpret_cast<size_t>(memory) & 1023); }

// The content of shared memory, `offset` bytes past a multiple of 1024, after a box was loaded to it.
extern "C" __global__ void load(const __grid_constant__ ptx::TensorMap map, unsigned* image, int axes, int x, int y,
                                int z, int bytes, int offset) {
  __shared__ ptx::mbarrier full;
  unsigned char* const to = aligned() + offset;
  for (int i = threadIdx.x; i < bytes / 4; i += blockDim.x) reinterpret_cast<unsigned*>(to)[i] = ~0u;
  if (threadIdx.x == 0) ptx::mbarrier_init(&full, 1);
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::tensor_prefetch(map);
    ptx::mbarrier_arrive_expect_tx(&full, bytes);
    if (axes == 2)
      ptx::tensor_load(to, map, x, y, &full);
    else
      ptx::tensor_load(to, map, x, y, z, &full);
  }
  ptx::mbarrier_wait(&full, 0);
  for (int i = threadIdx.x; i < bytes / 4; i += blockDim.x) image[i] = reinterpret_cast<unsigned*>(to)[i];
}

// Stores a box from shared memory, which the image has filled.
extern "C" __global__ void store(const __grid_constant__ ptx::TensorMap map, const unsigned* image, int axes, int x,
                                 int y, int z, int bytes, int offset) {
  unsigned char* const from = aligned() + offset;
  for (int i = threadIdx.x; i < bytes / 4; i += blockDim.x) reinterpret_cast<unsigned*>(from)[i] = image[i];
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (axes == 2)
      ptx::tensor_store(map, x, y, from);
    else
      ptx::tensor_store(map, x, y, z, from);
    ptx::bulk_commit();
    ptx::bulk_wait_read<0>();
  }
}

// Two boxes of 8 rows of 64 halves, which are read too early or not.
extern "C" __global__ void early(const __grid_constant__ ptx::TensorMap map, const __grid_constant__ ptx::TensorMap out,
                                 unsigned* sums, int which) {
  __shared__ __align__(1024) unsigned box[256];
  __shared__ ptx::mbarrier full;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_proxy_async();
  }
  box[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(&full, which == 1 ? 1000 : 1024);
    ptx::tensor_load(box + (which == 2 ? 4 : 0), map, 0, 0, &full);  // this load
    if (which == 3) ptx::tensor_load(box, map, 0, 0, 0, &full);
  }
  if (which != 4) ptx::mbarrier_wait(&full, 0);  // this wait
  const unsigned mine = box[threadIdx.x];        // this read
  if (which == 4) ptx::mbarrier_wait(&full, 0);
  __syncthreads();
  box[threadIdx.x] = 2 * mine;
  if (which != 5) ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::tensor_store(out, 0, 0, box);  // this store
    ptx::bulk_commit();
    if (which != 6) ptx::bulk_wait_read<0>();
  }
  sums[threadIdx.x] = mine;
}

extern "C" __global__ void values(int x, const __grid_constant__ ptx::TensorMap map, double y, unsigned* out) {
  __shared__ __align__(128) unsigned box[32];
  __shared__ ptx::mbarrier full;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive_expect_tx(&full, 128);
    ptx::tensor_load(box, map, x, int(y), &full);
  }
  __syncthreads();
  ptx::mbarrier_wait(&full, 0);
  out[threadIdx.x] = box[threadIdx.x];
}
#endif
