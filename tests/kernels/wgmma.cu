// Products of a warpgroup. Threads pass their registers unchanged: [product][register][thread].
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>

#ifdef PTX_WGMMA
extern __shared__ uint4 shared[];

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

// Copies b, in units of 16 bytes, to memory that products can read.
__device__ void share(const uint4* b, int vectors) {
  for (int i = threadIdx.x; i < vectors; i += blockDim.x) shared[i] = b[i];
  ptx::fence_proxy_async();
  __syncthreads();  // all of b is there
}

// One group of products to the same sums; each takes b `step` bytes after the one before.
template <int n>
__device__ void chain(const unsigned* a, const uint4* b, float* d, int vectors, int products, int leading, int stride,
                      int step, int accumulate) {
  share(b, vectors);
  const unsigned long long matrix = ptx::matrix_descriptor(shared, leading, stride);
  float sums[n / 8][4];
  load_sums(sums, d);
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

// Two groups of one product each, with separate sums. The first sums are ready while the second group may still run.
extern "C" __global__ void two_groups(const unsigned* a, const uint4* b, float* d, int vectors, int leading, int stride,
                                      int step) {
  share(b, vectors);
  const unsigned long long matrix = ptx::matrix_descriptor(shared, leading, stride);
  float first[3][4], second[6][4];
  unsigned registers[2][4];
  load_registers(registers[0], a), load_registers(registers[1], a + 4 * blockDim.x);
  ptx::wgmma_fence();
  ptx::wgmma_m64k16<24, false>(first, registers[0], matrix);
  ptx::wgmma_commit();
  ptx::wgmma_m64k16<48, false>(second, registers[1], matrix + (step >> 4));
  ptx::wgmma_commit();
  ptx::wgmma_wait<1>(first);
  store_sums(first, d);
  ptx::wgmma_wait<0>(second);
  store_sums(second, d + 12 * blockDim.x);
}

// The sums before the wait. b changes before the wait, too.
extern "C" __global__ void too_early(const unsigned* a, float* early, float* late) {
  __shared__ __align__(16) half b[24][16];
  for (int i = threadIdx.x; i < 384; i += 128) b[i / 16][i % 16] = __float2half(1.0f);
  ptx::fence_proxy_async();
  __syncthreads();
  float sums[3][4];
  for (int i = 0; i < 12; i++) sums[i / 4][i % 4] = -1;
  unsigned registers[4];
  load_registers(registers, a);
  ptx::wgmma_fence();
  ptx::wgmma_m64k16<24, true>(sums, registers, ptx::matrix_descriptor(b, 128, 256));
  ptx::wgmma_commit();
  store_sums(sums, early);
  __syncthreads();
  for (int i = threadIdx.x; i < 384; i += 128) b[i / 16][i % 16] = __float2half(2.0f);  // too early
  __syncthreads();
  ptx::wgmma_wait<0>(sums);
  store_sums(sums, late);
}

extern "C" __global__ void misused(float* global, int which) {
  __shared__ __align__(16) half b[24][16];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int i = threadIdx.x; i < 384; i += blockDim.x) b[i / 16][i % 16] = __float2half(1.0f);
  ptx::fence_proxy_async();
  __syncthreads();
  float sums[3][4] = {}, others[3][4] = {};
  const unsigned a[4] = {};
  unsigned long long matrix = ptx::matrix_descriptor(b, 128, 256);
  if (which == 0) ptx::matrix_descriptor(b[0] + 4, 128, 256);
  if (which == 1) ptx::matrix_descriptor(b, 8, 256);
  if (which == 2) ptx::matrix_descriptor(b, 128, 264);
  if (which == 3) ptx::matrix_descriptor(b, 128, 1 << 18);
  if (which == 4) matrix = ptx::matrix_descriptor(global, 128, 256);
  if (which == 5) matrix += lane / 16;
  if (which == 6 && lane >= 16) return;
  ptx::wgmma_fence();
  if (which != 7 || lane < 16) ptx::wgmma_m64k16<24, true>(sums, a, matrix);
  if (which == 8 && lane < 16) ptx::wgmma_commit();
  if (which == 9 && warp == 2) ptx::wgmma_m64k16<24, true>(others, a, matrix);
  if (which != 10) ptx::wgmma_commit();
  if (which == 11) ptx::wgmma_wait<1>(sums);  // of what it leaves
  if (which < 12) ptx::wgmma_wait<0>(sums);   // of all
  global[threadIdx.x] = sums[0][0];
}

// Two products, whose registers are written before each of them.
extern "C" __global__ void unfenced(float* global, int which) {
  share(reinterpret_cast<const uint4*>(global), 48);
  const unsigned long long matrix = ptx::matrix_descriptor(shared, 128, 256);
  float sums[3][4] = {};
  unsigned a[4] = {};
  if (which > 0) ptx::wgmma_fence();
  for (int step = 0; step < 2; step++) {
    if (which != 2) sums[0][0] += step;
    if (which != 1) a[0] += step;
    if (which == 3) ptx::wgmma_fence();
    ptx::wgmma_m64k16<24, true>(sums, a, matrix);  // of registers
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(sums);
  }
  global[threadIdx.x] = sums[0][0];
}

// Registers that no earlier product has used, and a result that is overwritten, without a fence in between.
extern "C" __global__ void unfenced_once(float* global, int which) {
  share(reinterpret_cast<const uint4*>(global), 48);
  const unsigned long long matrix = ptx::matrix_descriptor(shared, 128, 256);
  float sums[3][4] = {}, others[3][4] = {};
  unsigned a[4] = {}, b[4] = {};
  ptx::wgmma_fence();
  ptx::wgmma_m64k16<24, false>(sums, a, matrix);
  if (which == 0) others[2][3] = 1;
  if (which == 1) b[3] = 1;
  if (which < 2) ptx::wgmma_m64k16<24, true>(others, b, matrix);  // for the first time
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(sums);
  if (which == 3) ptx::wgmma_fence();
  if (which > 1) ptx::wgmma_m64k16<24, false>(sums, a, matrix);  // once more
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(sums);
  global[threadIdx.x] = sums[0][0] + others[0][0];
}

// Products of a ring of two stages, which another warp fills. One thread gives a stage back for the whole warpgroup.
extern "C" __global__ void ring(const unsigned* a, const half* b, float* d, int products) {
  constexpr int STAGES = 2, BYTES = 24 * 16 * 2;
  __shared__ __align__(128) unsigned char stages[STAGES][BYTES];
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES];
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) ptx::mbarrier_init(full + i, 1), ptx::mbarrier_init(empty + i, 1);
    ptx::fence_proxy_async();
  }
  __syncthreads();  // the mbarriers are there
  if (threadIdx.x >= 128) {
    for (int i = 0; i < products && threadIdx.x == 128; i++) {
      const int stage = i % STAGES;
      if (i >= STAGES) ptx::mbarrier_wait(empty + stage, (i / STAGES - 1) & 1);
      ptx::mbarrier_arrive_expect_tx(full + stage, BYTES);
      ptx::bulk_load(stages[stage], b + i * 24 * 16, BYTES, full + stage);
    }
    return;
  }
  float sums[3][4] = {};
  for (int i = 0; i < products; i++) {
    const int stage = i % STAGES;
    unsigned registers[4];
    for (int j = 0; j < 4; j++) registers[j] = a[(4 * i + j) * 128 + threadIdx.x];
    ptx::mbarrier_wait(full + stage, i / STAGES & 1);
    for (int j = 0; j < 8 && threadIdx.x / 32 == 2; j++) __nanosleep(100);  // one warp comes later than the others
    ptx::wgmma_fence();
    ptx::wgmma_m64k16<24, true>(sums, registers, ptx::matrix_descriptor(stages[stage], 128, 256));
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(sums);
    if (threadIdx.x == 0) ptx::mbarrier_arrive(empty + stage);
  }
  for (int i = 0; i < 12; i++) d[i * 128 + threadIdx.x] = sums[i / 4][i % 4];
}
#endif
