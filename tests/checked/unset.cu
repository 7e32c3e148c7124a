// Registers, local arrays and fragments that were never initialised.
#include <mma.h>
using namespace nvcuda;

// launch: 1, 32
extern "C" __global__ void sum(const float* x, float* y, float* part, int* flags) {
  float acc;
  for (int i = 0; i < 8; i++) acc += x[i * 32 + threadIdx.x];  // expect: uninitialised
  y[threadIdx.x] = acc;
}

// launch: 1, 32
extern "C" __global__ void sums(const float* x, float* y, float* part, int* flags) {
  float acc[4];
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 4; j++) acc[j] += x[i * 32 + threadIdx.x + j];  // expect: uninitialised
  for (int j = 0; j < 4; j++) y[threadIdx.x * 4 + j] = acc[j];
}

// launch: 1, 32
extern "C" __global__ void largest(const float* x, float* y, float* part, int* flags) {
  float most;
  for (int i = 0; i < 8; i++) most = fmaxf(most, x[i * 32 + threadIdx.x]);  // expect: uninitialised
  y[threadIdx.x] = most;
}

// launch: 1, 32
extern "C" __global__ void of_some_lanes(const float* x, float* y, float* part, int* flags) {
  float value;
  if (threadIdx.x < 20) value = x[threadIdx.x];
  y[threadIdx.x] = 2.0f * value;  // expect: uninitialised
}

// launch: 1, 32
extern "C" __global__ void fragment_not_filled(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(32) half tile[256];
  for (int i = threadIdx.x; i < 256; i += 32) tile[i] = x[i % 16];
  __syncthreads();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums;
  wmma::load_matrix_sync(a, tile, 16);
  wmma::load_matrix_sync(b, tile, 16);
  wmma::mma_sync(sums, a, b, sums);  // expect: uninitialised
  wmma::store_matrix_sync(y, sums, 16, wmma::mem_row_major);
}

// launch: 1, 32
extern "C" __global__ void fragment_not_loaded(const float* x, float* y, float* part, int* flags) {
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums;
  if (flags[0]) wmma::fill_fragment(sums, 0.0f);
  wmma::store_matrix_sync(y, sums, 16, wmma::mem_row_major);  // expect: uninitialised
}

// launch: 1, 32
extern "C" __global__ void fragments_by_hand(const float* x, float* y, float* part, int* flags) {
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums, more;
  for (int i = 0; i < sums.num_elements; i++) sums.x[i] = x[i];
  more = sums;
  for (int i = 0; i < more.num_elements; i++) more.x[i] *= 2.0f;
  wmma::store_matrix_sync(y, more, 16, wmma::mem_row_major);
}

// launch: 1, 32
extern "C" __global__ void set_on_each_path(const float* x, float* y, float* part, int* flags) {
  float value, unused, acc[4];
  for (int j = 0; j < 4; j++) acc[j] = 0.0f;
  if (threadIdx.x < 20)
    value = x[threadIdx.x];
  else
    value = 0.0f;
  for (int i = 0; i < 8; i++) acc[i % 4] += value;
  if (flags[1]) unused += value;
  y[threadIdx.x] = acc[threadIdx.x % 4];
}

// NaN, infinities and comparisons with them are ordinary values.
// launch: 1, 32
extern "C" __global__ void numbers_that_are_none(const float* x, float* y, float* part, int* flags) {
  const float infinite = 1.0f / x[0], none = infinite - infinite;
  float most = none, least = x[threadIdx.x];
  for (int i = 0; i < 100; i++) {
    most = most > x[i] ? most : x[i] * none;
    least = fminf(least, none);
  }
  y[threadIdx.x] = most + least + sqrtf(-1.0f - x[1]);
}

// launch: 1, 32
extern "C" __global__ void value_of_one_lane(const float* x, float* y, float* part, int* flags) {
  float value;
  if (threadIdx.x == 0) value = x[7];
  y[threadIdx.x] = __shfl_sync(0xffffffff, value, 0);
}
