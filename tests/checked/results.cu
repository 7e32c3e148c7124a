// Results that a function stores at a given address, and results that one lane of a warp computes for another.
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>
#include <mma.h>
using namespace nvcuda;

// launch: 2, 64
extern "C" __global__ void second_results(const float* x, float* y, float* part, int* flags) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  sincosf(x[i], &y[i], &part[i]);
  int exponent, quotient;
  float whole;
  const float sum = frexpf(x[i], &exponent) + modff(x[i] / 3.0f, &whole) + remquof(x[i], 3.0f, &quotient);
  __syncthreads();
  part[i] = y[blockIdx.x * 64 + 63 - threadIdx.x] + sum + exponent + whole + quotient;
}

// launch: 2, 64
extern "C" __global__ void second_results_too_far(const float* x, float* y, float* part, int* flags) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  sincosf(x[i], y + i, part + i * 9);  // expect: out-of-bounds
}

// launch: 1, 64
extern "C" __global__ void second_results_too_early(const float* x, float* y, float* part, int* flags) {
  __shared__ int exponents[64];
  y[threadIdx.x] = frexpf(x[threadIdx.x], &exponents[threadIdx.x]);
  y[threadIdx.x] += exponents[63 - threadIdx.x];  // expect: race
}

// launch: 1, 32
extern "C" __global__ void sums_in_memory(const float* x, float* y, float* part, int* flags) {
  const unsigned a[4] = {}, b[2] = {};
  float (&sums)[4] = *(float (*)[4])(y + 4 * threadIdx.x);
  for (int i = 0; i < 4; i++) sums[i] = x[i];
  ptx::mma_m16n8k16(sums, a, b);
  y[4 * threadIdx.x] += sums[3];
}

// launch: 1, 32
extern "C" __global__ void a_product_too_far(const float* x, float* y, float* part, int* flags) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(a, __float2half(1.0f));
  wmma::fill_fragment(b, __float2half(1.0f));
  wmma::fill_fragment(c, 1.0f);
  wmma::mma_sync(*(decltype(c)*)(y + 1024), a, b, c);  // expect: out-of-bounds
}
