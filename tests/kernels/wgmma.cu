// Products of a warpgroup. Threads pass registers as they find them: [product][register][thread].
#include <mini_dnn/ptx.cuh>

#ifdef PTX_WGMMA
template <int count, class T>
__device__ void load_registers(T (&registers)[count], const T* memory) {
  for (int i = 0; i < count; i++) registers[i] = memory[i * blockDim.x + threadIdx.x];
}
template <int count>
__device__ void load_sums(float (&d)[count][4], const float* memory) {
  for (int i = 0; i < 4 * count; i++) d[i / 4][i % 4] = memory[i * blockDim.x + threadIdx.x];
}
template <int count>
__device__ void store_sums(const float (&d)[count][4], float* memory) {
  for (int i = 0; i < 4 * count; i++) memory[i * blockDim.x + threadIdx.x] = d[i / 4][i % 4];
}

// Puts `vectors` x 16 bytes into the shared memory from `first` on, for the products of all warpgroups.
__device__ void share(uint4* shared, const uint4* b, int vectors) {
  for (int i = threadIdx.x; i < vectors; i += blockDim.x) shared[i] = b[i];
  ptx::fence_proxy_async();
  __syncthreads();  // all of b is there
}

// One group of products to the same sums; each takes b `step` bytes after the one before.
template <int n>
__device__ void chain(const unsigned* a, const uint4* b, float* d, int vectors, int products, int leading, int stride,
                      int step, int accumulate) {
  extern __shared__ uint4 shared[];
  share(shared, b, vectors);
  const unsigned long long matrix = ptx::matrix_descriptor(shared, leading, stride);
  float sums[n / 8][4];
  load_sums(sums, d);
  ptx::wgmma_fence();
  for (int i = 0; i < products; i++) {
    unsigned registers[4];
    load_registers(registers, a + i * 4 * blockDim.x);
    ptx::wgmma_fence();
    if (i || accumulate)
      ptx::wgmma_m64k16<n, true>(sums, registers, matrix + i * (step >> 4));
    else
      ptx::wgmma_m64k16<n, false>(sums, registers, matrix + i * (step >> 4));
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(sums);
  store_sums(sums, d);
}
extern "C" __global__ void chain24(const unsigned* a, const uint4* b, float* d, int vectors, int products, int leading,
                                   int stride, int step, int accumulate) {
  chain<24>(a, b, d, vectors, products, leading, stride, step, accumulate);
}
extern "C" __global__ void chain48(const unsigned* a, const uint4* b, float* d, int vectors, int products, int leading,
                                   int stride, int step, int accumulate) {
  chain<48>(a, b, d, vectors, products, leading, stride, step, accumulate);
}
extern "C" __global__ void chain72(const unsigned* a, const uint4* b, float* d, int vectors, int products, int leading,
                                   int stride, int step, int accumulate) {
  chain<72>(a, b, d, vectors, products, leading, stride, step, accumulate);
}
#endif
