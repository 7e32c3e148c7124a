// CUDA's functions of whole numbers: `out` has a row for each of them.
#include <cuda_pipeline.h>

extern "C" __global__ void words(const unsigned* a, const unsigned* b, unsigned* out, int n) {
  const int i = threadIdx.x;
  const unsigned x = a[i], y = b[i];
  const unsigned results[] = {
      umin(x, y),
      umax(x, y),
      __sad(x, y, 5),
      __usad(x, y, 5),
      __hadd(int(x), int(y)),
      __uhadd(x, y),
      __vadd4(x, y),
      __vsub2(x, y),
      __vminu4(x, y),
      __vmaxs2(x, y),
      __vcmpgtu4(x, y),
      __vcmplts2(x, y),
      __vsadu4(x, y),
      __vavgu4(x, y),
      __vavgs2(x, y),
      __vaddss4(x, y),
      __vsubus2(x, y),
      __vabs4(x),
      __vsetles2(x, y),
      __dp2a_hi(x, y, 1u),
      unsigned(__brevll(x) >> 32),
      unsigned(__umul64hi((unsigned long long)x << 32, (unsigned long long)y << 32)),
  };
  for (int k = 0; k < int(sizeof results / 4); k++) out[k * n + i] = results[k];
}

extern "C" __global__ void lanes_that_match(const unsigned* a, unsigned* out) {
  int same;
  const unsigned mask = __match_all_sync(0xffffffff, a[threadIdx.x], &same);
  out[threadIdx.x] = mask ^ same;
  atomicAdd_block(&out[32], same);
  atomicMax_system(&out[33], threadIdx.x);
}

extern "C" __global__ void pipeline(const float* x, float* y) {
  __shared__ __align__(16) float tile[2][128];
  for (int k = 0; k < 4; k++) {
    if (k == 0) __pipeline_memcpy_async(&tile[0][4 * threadIdx.x], x + 4 * threadIdx.x, 16), __pipeline_commit();
    if (k < 3) __pipeline_memcpy_async(&tile[~k & 1][4 * threadIdx.x], x + 128 * (k + 1) + 4 * threadIdx.x, 16, 4 * k);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    for (int j = 0; j < 4; j++) y[128 * k + 4 * threadIdx.x + j] = tile[k & 1][127 - 4 * threadIdx.x - j];
    __syncthreads();
  }
}
