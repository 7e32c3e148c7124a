// Small kernels, each written for one counter. Their counts by Nsight Compute are compared with those of the emulator.
//
// All blocks have 64 threads. `s` is a stride or a distance that the compiler does not know.
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>

#define I (blockIdx.x * blockDim.x + threadIdx.x)
#define T threadIdx.x

// Global memory.
extern "C" __global__ void strided(const float* x, float* y, int s) { y[I] = x[I * s]; }
extern "C" __global__ void shifted(const float* x, float* y, int s) { y[I] = x[I + s]; }
extern "C" __global__ void stored_strided(const float* x, float* y, int s) { y[I * s] = x[I]; }
extern "C" __global__ void wide8(const float2* x, float2* y, int s) { y[I] = x[I * s]; }
extern "C" __global__ void wide16(const float4* x, float4* y, int s) { y[I] = x[I * s]; }
extern "C" __global__ void narrow1(const unsigned char* x, unsigned char* y, int s) { y[I] = x[I * s]; }
extern "C" __global__ void narrow2(const unsigned short* x, unsigned short* y, int s) { y[I] = x[I * s]; }
extern "C" __global__ void three(const float3* x, float3* y, int s) { y[I] = x[I * s]; }
extern "C" __global__ void broadcast(const float* x, float* y, int s) { y[I] = x[s]; }
extern "C" __global__ void reversed(const float* x, float* y, int s) { y[I] = x[s - I]; }
extern "C" __global__ void gathered(const float* x, float* y, int s) { y[I] = x[I * s % 1021]; }
extern "C" __global__ void transposed(const float* x, float* y, int s) { y[I] = x[T % 8 * s + I / 8]; }

// Inactive lanes.
extern "C" __global__ void first_lanes(const float* x, float* y, int s) {
  if (T % 32 < s) y[I] = x[I];
}
extern "C" __global__ void every_other(const float* x, float* y, int s) {
  if (T % s == 0) y[I] = x[I];
}
extern "C" __global__ void two_ways(const float* x, float* y, int s) {
  float sum = 0;
  if (T % 2) {
    for (int i = 0; i < s; i++) sum += x[I + 64 * i];
  } else {
    for (int i = 0; i < s; i++) sum *= x[I + 2 * i];
  }
  y[I] = sum;
}
extern "C" __global__ void trips(const float* x, float* y, int s) {
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < T % s; i++) sum += x[I + 32 * i];
  y[I] = sum;
}
extern "C" __global__ void nested_trips(const float* x, float* y, int s) {
  float sum = 0;
#pragma unroll 1
  for (int j = 0; j < s; j++)
#pragma unroll 1
    for (int i = 0; i < (T + j) % s; i++) sum += x[I + 32 * i + j];
  y[I] = sum;
}
extern "C" __global__ void halo(const float* x, float* y, int s) {
  float sum = 0;
#pragma unroll 1
  for (int i = -2; i <= 2; i++) {
    const int at = int(I) + i * s;
    if (at >= 0 && at < 128) sum += x[at];
  }
  y[I] = sum;
}
extern "C" __global__ void leave_early(const float* x, float* y, int s) {
  if (I >= s) return;
  y[I] = x[I];
}

// Atomics.
extern "C" __global__ void atomic_each(const float* x, int* y, int s) { atomicAdd(y + I * s, 1); }
extern "C" __global__ void atomic_old(const float* x, int* y, int s) { y[1024 + I] = atomicAdd(y + I * s, 1); }
extern "C" __global__ void atomic_same(const float* x, int* y, int s) { y[1024 + I] = atomicExch(y + s, int(I)); }
extern "C" __global__ void shared_atomic(const float* x, int* y, int s) {
  __shared__ int t[64];
  t[T] = 0;
  __syncthreads();
  atomicAdd(t + T / s, 1);
  __syncthreads();
  y[I] = t[T];
}

// Shared memory: the stores have no conflicts, so that the load can be examined.
#define SHARED(name, type, count, index)                             \
  extern "C" __global__ void name(const float* x, float* y, int s) { \
    __shared__ type t[count];                                        \
    const type* from = reinterpret_cast<const type*>(x);             \
    for (int i = T; i < count; i += 64) t[i] = from[i];              \
    __syncthreads();                                                 \
    reinterpret_cast<type*>(y)[I] = t[index];                        \
  }
SHARED(shared4, float, 2112, T* s)
SHARED(shared8, float2, 512, T* s)
SHARED(shared16, float4, 512, T* s)
SHARED(shared1, unsigned char, 2048, T* s)
SHARED(shared2, unsigned short, 2048, T* s)
SHARED(shared4_divided, float, 64, T / s)
SHARED(shared8_divided, float2, 64, T / s)
SHARED(shared16_divided, float4, 64, T / s)
SHARED(shared4_xor, float, 64, T ^ s)
SHARED(shared16_xor, float4, 64, T ^ s)
SHARED(shared8_mixed, float2, 512, T % 16 * s)
SHARED(shared16_mixed, float4, 512, T % 8 * s)

#define SOME(name, type)                                             \
  extern "C" __global__ void name(const float* x, float* y, int s) { \
    __shared__ type t[64];                                           \
    t[T] = reinterpret_cast<const type*>(x)[I];                      \
    __syncthreads();                                                 \
    if (T % 32 < s) reinterpret_cast<type*>(y)[I] = t[63 - T];       \
  }
SOME(shared8_first, float2)
SOME(shared16_first, float4)
SOME(shared4_first, float)

extern "C" __global__ void shared_stores(const float* x, float* y, int s) {
  __shared__ float t[2112];
  t[T * s] = x[I];
  __syncthreads();
  y[I] = t[(63 - T) * s];
}
extern "C" __global__ void shared_stores16(const float* x, float* y, int s) {
  __shared__ float4 t[512];
  t[T * s] = reinterpret_cast<const float4*>(x)[I];
  __syncthreads();
  reinterpret_cast<float4*>(y)[I] = t[(63 - T) * s];
}

// Other units.
extern "C" __global__ void many_fmas(const float* x, float* y, int s) {
  float a = x[I], b = x[I + 64];
#pragma unroll 1
  for (int i = 0; i < s; i++) {
    a = a * b + 1.0f;
    b = b * a + 2.0f;
    a = a * b + 3.0f;
    b = b * a + 4.0f;
  }
  y[I] = a + b;
}
extern "C" __global__ void special(const float* x, float* y, int s) {
  float a = x[I];
#pragma unroll 1
  for (int i = 0; i < s; i++) a = __expf(a);
  y[I] = a;
}
extern "C" __global__ void products(const float* x, float* y, int s) {
  float d[4] = {};
  const unsigned* w = reinterpret_cast<const unsigned*>(x);
  const unsigned a[4] = {w[I], w[I + 64], w[I + 128], w[I + 192]}, b[2] = {w[I + 256], w[I + 320]};
#pragma unroll 1
  for (int i = 0; i < s; i++) ptx::mma_m16n8k16(d, a, b);
  y[I] = d[0] + d[1] + d[2] + d[3];
}
extern "C" __global__ void matrices(const float* x, unsigned* y, int s) {
  __shared__ alignas(128) float4 t[512];
  for (int i = T; i < 512; i += 64) t[i] = reinterpret_cast<const float4*>(x)[i];
  __syncthreads();
  unsigned d[4];
  ptx::ldmatrix(d, t + T % 32 * s);
  y[I] = d[0] ^ d[1] ^ d[2] ^ d[3];
}
extern "C" __global__ void matrix(const float* x, unsigned* y, int s) {
  __shared__ alignas(128) float4 t[512];
  for (int i = T; i < 512; i += 64) t[i] = reinterpret_cast<const float4*>(x)[i];
  __syncthreads();
  unsigned d[1];
  ptx::ldmatrix(d, t + T % 32 * s);
  y[I] = d[0];
}
extern "C" __global__ void copied16(const float* x, float* y, int s) {
  __shared__ alignas(128) float t[2048];
  ptx::cp_async<16>(t + 4 * T, x + 4 * I * s);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncthreads();
  y[I] = t[T];
}
extern "C" __global__ void copied4(const float* x, float* y, int s) {
  __shared__ alignas(128) float t[2048];
  ptx::cp_async<4>(t + T * s, x + I * s);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncthreads();
  y[I] = t[T * s];
}
__constant__ float constants[1024] = {1, 2, 3};
extern "C" __global__ void constant_same(const float* x, float* y, int s) { y[I] = constants[s + blockIdx.x]; }
extern "C" __global__ void constant_each(const float* x, float* y, int s) { y[I] = constants[T * s]; }
