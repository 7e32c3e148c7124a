// Shuffles from lanes that the mask does not name, or that have returned: the value is undefined, and a mistake if it
// counts. Products and matrices that half of a warp calls.
#include <mma.h>
#include <mini_dnn/ptx.cuh>

// launch: 1, 32
extern "C" __global__ void half_of_a_warp(float* x, float* y, float* part, int* flags) {
  if (threadIdx.x >= 16) return;
  float sum = x[threadIdx.x];
  for (int d = 8; d; d /= 2) sum += __shfl_down_sync(0xffff, sum, d);  // the upper lanes read beyond, but do not count
  if (threadIdx.x == 0) y[0] = sum;
}

// launch: 1, 32
extern "C" __global__ void too_many_steps(float* x, float* y, float* part, int* flags) {
  if (threadIdx.x >= 16) return;
  float sum = x[threadIdx.x];
  for (int d = 16; d; d /= 2) sum += __shfl_down_sync(0xffff, sum, d);  // expect: warp-mask
  if (threadIdx.x == 0) y[0] = sum;
}

// launch: 1, 32
extern "C" __global__ void dropped_by_a_condition(float* x, float* y, float* part, int* flags) {
  const unsigned mask = __ballot_sync(~0u, threadIdx.x < 20);
  if (threadIdx.x >= 20) return;
  float sum = x[threadIdx.x];
  for (int d = 1; d < 32; d *= 2) {
    const float below = __shfl_sync(mask, sum, threadIdx.x - d);
    if (int(threadIdx.x) >= d) sum += below;
  }
  y[threadIdx.x] = sum;
}

// launch: 1, 32
extern "C" __global__ void whole_numbers_dropped(float* x, float* y, float* part, int* flags) {
  if (threadIdx.x >= 12) return;
  const int next = __shfl_down_sync(0xfff, int(x[threadIdx.x]), 1);
  y[threadIdx.x] = threadIdx.x < 11 ? next : -1;
}

// launch: 1, 32
extern "C" __global__ void whole_numbers_used(float* x, float* y, float* part, int* flags) {
  if (threadIdx.x >= 12) return;
  const int next = __shfl_down_sync(0xfff, int(x[threadIdx.x]), 1);  // expect: warp-mask
  y[threadIdx.x] = next > 3 ? 1.0f : 2.0f;
}

// launch: 1, 32
extern "C" __global__ void largest_of_a_few(float* x, float* y, float* part, int* flags) {
  if (threadIdx.x >= 24) return;
  float most = x[threadIdx.x];
  for (int d = 16; d; d /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffff, most, d));  // expect: warp-mask
  y[threadIdx.x] = most;
}

// launch: 1, 32
extern "C" __global__ void doubles_used(float* x, float* y, float* part, int* flags) {
  if (threadIdx.x >= 24) return;
  const double other = __shfl_down_sync(0xffffff, double(x[threadIdx.x]), 8);  // expect: warp-mask
  y[threadIdx.x] = float(other * 0.5);
}

// launch: 1, 32
extern "C" __global__ void product_of_half_a_warp(float* x, float* y, float* part, int* flags) {
  if (threadIdx.x >= 16) return;
  float d[4] = {};
  const unsigned a[4] = {}, b[2] = {};
  ptx::mma_m16n8k16(d, a, b);  // expect: warp-mask
  y[threadIdx.x] = d[0];
}

// launch: 1, 32
extern "C" __global__ void fragments_of_half_a_warp(float* x, float* y, float* part, int* flags) {
  using namespace nvcuda;
  if (threadIdx.x >= 16) return;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> d;
  wmma::fill_fragment(a, 1.0f), wmma::fill_fragment(b, 1.0f), wmma::fill_fragment(d, 0.0f);
  wmma::mma_sync(d, a, b, d);  // expect: warp-mask
  y[threadIdx.x] = d.x[0];
}

// launch: 1, 32
extern "C" __global__ void matrices_of_half_a_warp(float* x, float* y, float* part, int* flags) {
  __shared__ __align__(16) half rows[8][8];
  for (int i = threadIdx.x; i < 64; i += 32) rows[i / 8][i % 8] = __float2half(x[i]);
  __syncthreads();
  unsigned d[1];
  if (threadIdx.x < 16) ptx::ldmatrix(d, rows[threadIdx.x % 8]);  // expect: warp-mask
  if (threadIdx.x < 16) y[threadIdx.x] = d[0];
}
