// Kinds of memory, atomics, printing, and kernels that go wrong.
#include <cuda_fp16.h>

__constant__ float weights[8];
__device__ unsigned launches;
__device__ int table[3] = {10, 20, 30};

extern "C" __global__ void weighted(const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i] * weights[i % 8] + table[i % 3];
  if (i == 0) launches++;
}

// Static and dynamic shared memory together; two names for the same dynamic memory.
extern "C" __global__ void shared_kinds(const float* x, float* y) {
  __shared__ alignas(128) float fixed[64];
  extern __shared__ __align__(16) float dynamic[];
  const int i = threadIdx.x, n = blockDim.x;
  fixed[i % 64] = 0.f;
  for (int j = i; j < 2 * n; j += n) dynamic[j] = x[j];
  __syncthreads();
  atomicAdd(&fixed[i % 64], dynamic[2 * n - 1 - i]);
  __syncthreads();
  y[i] = fixed[i % 64];
}

// The last word of the dynamic shared memory, and what it holds before anyone writes it.
extern "C" __global__ void far_end(unsigned* out, int words) {
  extern __shared__ float dynamic[];
  unsigned* all = reinterpret_cast<unsigned*>(dynamic);
  if (threadIdx.x == 0) out[2 * blockIdx.x] = all[words - 1];
  __syncthreads();
  all[words - 1 - threadIdx.x] = 1000 + threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) out[2 * blockIdx.x + 1] = all[words - 1];
}

extern "C" __global__ void atomics(int* i, unsigned* u, unsigned long long* ull, float* f, __half* h) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&i[0], 2);
  atomicSub(&i[1], 1);
  atomicMax(&i[2], t);
  atomicMin(&i[3], -t);
  atomicExch(&i[4], 5);
  for (int old = i[5]; atomicCAS(&i[5], old, old + 1) != old;) old = ((volatile int*)i)[5];
  atomicOr(&u[0], 1u << t % 32);
  atomicAnd(&u[1], ~(1u << t % 32));
  atomicXor(&u[2], 1u << t % 32);
  atomicInc(&u[3], 9);
  atomicDec(&u[4], 9);
  atomicAdd(&ull[0], 1ull << 33);
  atomicAdd(&f[0], 0.5f);
  if (t < 1000) atomicAdd(&h[0], __float2half(1.f));
}

extern "C" __global__ void say(int n) { printf("thread %d of %d: %.2f\n", threadIdx.x, n, n * 0.5); }

extern "C" __global__ void check(const int* x) { assert(x[threadIdx.x] >= 0); }

extern "C" __global__ void store(float* y, long long i) { y[i + threadIdx.x] = 1.f; }
extern "C" __global__ void load_null(float* y) { y[0] = *(volatile float*)nullptr; }
extern "C" __global__ void divide_by_constant(int* y) { y[0] /= int(threadIdx.x) / (8 / 32); }
extern "C" __global__ void divide(int* y, int by) { y[threadIdx.x] = 7 / (y[threadIdx.x] - by); }

__device__ __noinline__ int recurse(volatile int* x, int depth) {
  volatile int local[64];
  local[depth % 64] = depth;
  return depth < *x ? recurse(x, depth + 1) + local[depth % 64] : 0;
}
extern "C" __global__ void deep(int* x, int barrier) {
  if (barrier) __syncthreads();
  x[1] = recurse(x, 0);
}

__device__ __noinline__ int fill(volatile int* x, int depth) {
  volatile int local[64];
  for (int i = 0; i < 64; i++) local[i] = depth;
  return depth < *x ? fill(x, depth + 1) + local[depth % 64] : 0;
}
// Another thread had a stack before, which is free again.
extern "C" __global__ void deep_alone(int* x) {
  __syncthreads();  // both threads have a stack
  if (threadIdx.x == 0) return;
  __syncthreads();  // the other one has returned
  x[1] = fill(x, 0);
}

extern "C" __global__ void vectors(const float4* in, float2* out, const int4* k) {
  const float4 v = __ldg(&in[threadIdx.x]);
  const int4 i = k[threadIdx.x];
  out[threadIdx.x] = make_float2(v.x + v.y + i.x, v.z * v.w + i.w);
}

extern "C" __global__ void endless(volatile int* x) { while (*x == 0); }
