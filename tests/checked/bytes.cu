// Values that are smaller than checked mode's unit of memory: bool, char, half.
#include <cuda_fp16.h>

// launch: 2, 64
extern "C" __global__ void neighbouring_bytes(const float* x, float* y, float* part, int* flags) {
  __shared__ unsigned char bytes[64];
  bytes[threadIdx.x] = threadIdx.x;
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = bytes[63 - threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 16) ((unsigned*)bytes)[threadIdx.x] = 0;
  __syncthreads();
  part[blockIdx.x * 64 + threadIdx.x] = bytes[threadIdx.x ^ 1];
}

// launch: 2, 64
extern "C" __global__ void halves_in_floats(const float* x, float* y, float* part, int* flags) {
  half* const out = (half*)part;
  const int i = blockIdx.x * 64 + threadIdx.x;
  out[i] = __float2half(x[i]);
  y[i] = __half2float(out[i]);
}

// launch: 1, 64
extern "C" __global__ void bytes_of_blocks(const float* x, float* y, float* part, int* flags) {
  __shared__ float scratch[32];
  half* const tile = (half*)scratch;
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 32) y[threadIdx.x] = __low2float(((half2*)scratch)[threadIdx.x]);
  if (threadIdx.x >= 32) y[threadIdx.x] = __half2float(tile[threadIdx.x]);
}

// launch: 2, 64
extern "C" __global__ void flags_of_warps(const float* x, float* y, float* part, int* flags) {
  __shared__ bool any[2];
  const bool mine = __any_sync(0xffffffff, x[threadIdx.x] > 40.0f);
  if (threadIdx.x % 32 == 0) any[threadIdx.x / 32] = mine;
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = any[0] || any[1];
}

// launch: 1, 64
extern "C" __global__ void bool_for_all(const float* x, float* y, float* part, int* flags) {
  __shared__ bool found;
  if (threadIdx.x == 0) found = false;
  if (threadIdx.x == 40) found = true;  // expect: race
  __syncthreads();
  y[threadIdx.x] = found;
}

// launch: 1, 64
extern "C" __global__ void bool_no_barrier(const float* x, float* y, float* part, int* flags) {
  __shared__ bool ready;
  if (threadIdx.x == 0) ready = x[0] == 0.0f;
  if (ready) y[threadIdx.x] = 1.0f;  // expect: race
}

// launch: 1, 64
extern "C" __global__ void chars_shifted(const float* x, float* y, float* part, int* flags) {
  __shared__ char text[65];
  text[threadIdx.x] = threadIdx.x;
  if (threadIdx.x == 0) text[64] = 0;
  y[threadIdx.x] = text[threadIdx.x + 1];  // expect: race
}

// launch: 1, 64
extern "C" __global__ void halves_in_a_float_scratch(const float* x, float* y, float* part, int* flags) {
  __shared__ float scratch[64];
  half* const tile = (half*)scratch;
  tile[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = __half2float(tile[threadIdx.x ^ 33]);  // expect: race
}

// launch: 2, 64
extern "C" __global__ void halves_of_two_blocks(const float* x, float* y, float* part, int* flags) {
  half* const out = (half*)part;
  out[blockIdx.x * 63 + threadIdx.x] = x[blockIdx.x];  // expect: race
}

// launch: 1, 64
extern "C" __global__ void bytes_nobody_wrote(const float* x, float* y, float* part, int* flags) {
  unsigned char* const bytes = (unsigned char*)part;
  bytes[2 * threadIdx.x] = threadIdx.x;
  y[threadIdx.x] = bytes[2 * threadIdx.x] + bytes[2 * threadIdx.x + 1];  // expect: uninitialised
}

// Copies of no bytes, which access nothing.
// launch: 1, 1
extern "C" __global__ void copies_nothing(const float* x, float* y, float* part, int* flags) {
  for (int i = 4; i >= flags[0]; i--) memcpy(y, x, i * sizeof *y);
  for (int i = 4; i >= flags[0]; i--) memset(part, 0, i * sizeof *part);
  memmove(y + 4, y, part[0] * sizeof *y);
}
