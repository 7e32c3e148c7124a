// Kernels that were written to test the finished checked mode. None of them resembles those of the other files.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;

// launch: 2, 64
extern "C" __global__ void double_max(const float* x, float* y, float* part, int* flags) {
  __shared__ double most;
  if (threadIdx.x == 0) most = -1.0;
  __syncthreads();
  unsigned long long* word = (unsigned long long*)&most;
  unsigned long long old = atomicAdd(word, 0ull), assumed;
  do {
    assumed = old;
    old = atomicCAS(word, assumed, __double_as_longlong(fmax((double)x[threadIdx.x], __longlong_as_double(assumed))));
  } while (assumed != old);
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = (float)most;
}

// launch: 2, 64
extern "C" __global__ void short_cas(const float* x, float* y, float* part, int* flags) {
  __shared__ unsigned short sums[4];
  if (threadIdx.x < 4) sums[threadIdx.x] = 0;
  __syncthreads();
  unsigned short* at = &sums[threadIdx.x % 4];
  unsigned short old = *(volatile unsigned short*)at, assumed;
  do {
    assumed = old;
    old = atomicCAS(at, assumed, (unsigned short)(assumed + 1));
  } while (old != assumed);
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = sums[threadIdx.x % 4];
}

// launch: 2, 64
extern "C" __global__ void half_cas_on_a_word(const float* x, float* y, float* part, int* flags) {
  __shared__ half2 sum;
  if (threadIdx.x == 0) sum = __float2half2_rn(0.0f);
  __syncthreads();
  unsigned* word = (unsigned*)&sum;
  unsigned old = atomicAdd(word, 0u), assumed;
  do {
    assumed = old;
    half2 both;
    memcpy(&both, &assumed, 4);
    if (threadIdx.x & 1)
      both.x = __hadd(both.x, __float2half(1.0f));
    else
      both.y = __hadd(both.y, __float2half(1.0f));
    unsigned next;
    memcpy(&next, &both, 4);
    old = atomicCAS(word, assumed, next);
  } while (old != assumed);
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = __half2float(__low2half(sum)) + __half2float(__high2half(sum));
}

// launch: 2, 128
extern "C" __global__ void volatile_reduction(const float* x, float* y, float* part, int* flags) {
  __shared__ float s[128];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 64) s[threadIdx.x] += s[threadIdx.x + 64];
  __syncthreads();
  if (threadIdx.x < 32) {
    volatile float* v = s;
    float sum = v[threadIdx.x] + v[threadIdx.x + 32];
    __syncwarp();
    v[threadIdx.x] = sum;
    __syncwarp();
    for (int d = 16; d; d >>= 1) {
      if (threadIdx.x < d) sum += v[threadIdx.x + d];
      __syncwarp();
      if (threadIdx.x < d) v[threadIdx.x] = sum;
      __syncwarp();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
  }
}

// launch: 2, 64
extern "C" __global__ void carved_memory(const float* x, float* y, float* part, int* flags) {
  __shared__ alignas(16) unsigned char smem[64 * 4 + 64 * 2 + 64 + 64 * 8];
  float* f = (float*)smem;
  half* h = (half*)(f + 64);
  unsigned char* c = (unsigned char*)(h + 64);
  double* d = (double*)(c + 64);
  const int t = threadIdx.x;
  f[t] = x[t], h[t] = __float2half(x[t]), c[t] = (unsigned char)t, d[t] = x[t];
  __syncthreads();
  const int o = (t + 17) % 64;
  y[blockIdx.x * 64 + t] = f[o] + __half2float(h[o]) + c[o] + (float)d[o];
}

// launch: 4, 32
extern "C" __global__ void all_atomics(const float* x, float* y, float* part, int* flags) {
  unsigned long long* wide = (unsigned long long*)(flags + 8);
  atomicAdd(wide, 1ull);
  atomicMax(wide + 1, (unsigned long long)threadIdx.x);
  atomicMin((long long*)wide + 2, -(long long)threadIdx.x);
  atomicOr(wide + 3, 1ull << threadIdx.x);
  atomicAnd(wide + 4, ~0ull);
  atomicXor(wide + 5, 1ull << threadIdx.x);
  atomicExch(wide + 6, 5ull);
  atomicInc((unsigned*)flags + 32, 7u);
  atomicDec((unsigned*)flags + 33, 7u);
  atomicSub(flags + 34, 1);
  atomicCAS(flags + 35, 0, 3);
  atomicMax((int*)flags + 36, __float_as_int(x[threadIdx.x]));
}

// launch: 4, 64
extern "C" __global__ void look_back(const float* x, float* y, float* part, int* flags) {
  __shared__ float before;
  __shared__ float sums[64];
  sums[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  for (int d = 1; d < 64; d *= 2) {
    const float v = threadIdx.x >= d ? sums[threadIdx.x - d] : 0.0f;
    __syncthreads();
    sums[threadIdx.x] += v;
    __syncthreads();
  }
  unsigned long long* state = (unsigned long long*)flags;
  if (threadIdx.x == 63) {
    float sum = 0.0f;
    if (blockIdx.x > 0) {
      unsigned long long word;
      while (!((word = atomicAdd(state + blockIdx.x - 1, 0ull)) >> 32)) __nanosleep(20);
      sum = __uint_as_float((unsigned)word);
    }
    atomicExch(state + blockIdx.x, 1ull << 32 | __float_as_uint(sum + sums[63]));
    before = sum;
  }
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = before + sums[threadIdx.x];
}

// launch: 3, 64
extern "C" __global__ void ticket_lock(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x == 0) {
    const int mine = atomicAdd(flags, 1);
    while (atomicAdd(flags + 1, 0) != mine) {
    }
    __threadfence();
    volatile int* total = flags + 2;
    *total = *total + 1;
    flags[3] += blockIdx.x;
    __threadfence();
    atomicAdd(flags + 1, 1);
  }
}

// launch: 1, 64
extern "C" __global__ void ring_of_two_warps(const float* x, float* y, float* part, int* flags) {
  __shared__ float ring[4][32];
  __shared__ int full[4], empty[4];
  if (threadIdx.x < 4) full[threadIdx.x] = 0, empty[threadIdx.x] = 1;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    for (int i = 0; i < 8; i++) {
      if (lane == 0)
        while (atomicCAS(&empty[i % 4], 1, 0) != 1) {
        }
      __syncwarp();
      ring[i % 4][lane] = x[i * 32 + lane];
      __threadfence_block();
      __syncwarp();
      if (lane == 0) atomicExch(&full[i % 4], 1);
    }
  } else {
    for (int i = 0; i < 8; i++) {
      if (lane == 0)
        while (atomicCAS(&full[i % 4], 1, 0) != 1) {
        }
      __syncwarp();
      y[i * 32 + lane] = ring[i % 4][31 - lane];
      __threadfence_block();
      __syncwarp();
      if (lane == 0) atomicExch(&empty[i % 4], 1);
    }
  }
}

template <int N, class F>
__device__ float folded(const float* p, F f) {
  struct Pair {
    float a, b;
    __device__ float sum() const { return a + b; }
  };
  Pair pair = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < N; i++) (i & 1 ? pair.a : pair.b) += f(p[i]);
  return pair.sum();
}
__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__constant__ float weights[5] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f};

// launch: 2, 32
extern "C" __global__ void templates_and_recursion(const float* x, float* y, float* part, int* flags) {
  const float k = weights[threadIdx.x % 5];
  auto twice = [k](float v) { return k * v; };
  y[blockIdx.x * 32 + threadIdx.x] = folded<7>(x + threadIdx.x, twice) + fibonacci(threadIdx.x % 9);
}

// launch: 2, 64
extern "C" __global__ void pointers_into_the_middle(const float* x, float* y, float* part, int* flags) {
  float taps[9];
  float* middle = taps + 4;
  for (int d = -4; d <= 4; d++) middle[d] = x[threadIdx.x + 4 + d];
  float sum = 0.0f;
  for (float* p = taps; p != taps + 9; ++p) sum += *p;
  y[blockIdx.x * 64 + threadIdx.x] = sum + middle[-(int)(threadIdx.x % 5)];
}

// launch: 2, 64
extern "C" __global__ void groups(const float* x, float* y, float* part, int* flags) {
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  __shared__ float of_tile[8];
  const float sum = cg::reduce(tile, x[block.thread_rank()], cg::plus<float>());
  if (tile.thread_rank() == 0) of_tile[tile.meta_group_rank()] = sum;
  block.sync();
  if (threadIdx.x % 3 == 0) {
    auto active = cg::coalesced_threads();
    int first = 0;
    if (active.thread_rank() == 0) first = atomicAdd(flags, active.size());
    first = active.shfl(first, 0);
    part[first + active.thread_rank()] = of_tile[threadIdx.x % 8];
  }
  y[blockIdx.x * 64 + threadIdx.x] = of_tile[(threadIdx.x + 1) % 8];
}

// launch: 3, 64
extern "C" __global__ void last_block(const float* x, float* y, float* part, int* flags) {
  __shared__ bool last;
  part[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc((unsigned*)flags, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  float sum = 0.0f;
  for (unsigned b = 0; b < gridDim.x; b++) sum += part[b * 64 + 63 - threadIdx.x];
  y[threadIdx.x] = sum;
}

union Word {
  float f;
  unsigned char b[4];
};

// launch: 2, 64
extern "C" __global__ void bytes_of_a_word(const float* x, float* y, float* part, int* flags) {
  __shared__ Word words[16];
  Word mine;
  mine.f = x[threadIdx.x / 4];
  words[threadIdx.x / 4].b[threadIdx.x % 4] = mine.b[threadIdx.x % 4];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = words[threadIdx.x % 16].f;
}

// launch: 2, 64
extern "C" __global__ void half_atomics(const float* x, float* y, float* part, int* flags) {
  __shared__ half2 sums[2];
  __shared__ half one;
  __shared__ double d;
  if (threadIdx.x == 0) sums[0] = sums[1] = __float2half2_rn(0.0f), one = __float2half(0.0f), d = 0.0;
  __syncthreads();
  atomicAdd(&sums[threadIdx.x % 2], __float2half2_rn(1.0f));
  atomicAdd(&one, __float2half(1.0f));
  atomicAdd(&d, 1.0);
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = __low2float(sums[0]) + __half2float(one) + (float)d;
}

// launch: 2, 64
extern "C" __global__ void reader_fences_alone(const float* x, float* y, float* part, int* flags) {
  if (blockIdx.x == 0) {
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) atomicExch(flags, 1);
  } else {
    if (threadIdx.x == 0)
      while (atomicAdd(flags, 0) == 0) {
      }
    __syncthreads();
    __threadfence();
    y[threadIdx.x] = part[threadIdx.x];  // expect: race
  }
}

// launch: 2, 64
extern "C" __global__ void fence_of_the_block(const float* x, float* y, float* part, int* flags) {
  if (blockIdx.x == 0) {
    part[threadIdx.x] = x[threadIdx.x];
    __threadfence_block();
    __syncthreads();
    if (threadIdx.x == 0) atomicExch(flags, 1);
  } else {
    if (threadIdx.x == 0)
      while (atomicAdd(flags, 0) == 0) {
      }
    __syncthreads();
    y[threadIdx.x] = part[threadIdx.x];  // expect: race
  }
}

// launch: 1, 64
extern "C" __global__ void halves_of_another_warp(const float* x, float* y, float* part, int* flags) {
  __shared__ half h[64];
  h[threadIdx.x] = __float2half(x[threadIdx.x]);
  __syncwarp();
  y[threadIdx.x] = __half2float(h[63 - threadIdx.x]);  // expect: race
}

// launch: 1, 64
extern "C" __global__ void char_flags(const float* x, float* y, float* part, int* flags) {
  __shared__ char seen[8];
  if (threadIdx.x < 8) seen[threadIdx.x] = 0;
  __syncthreads();
  seen[threadIdx.x / 8] += 1;  // expect: race
  __syncthreads();
  y[threadIdx.x] = seen[threadIdx.x / 8];
}

__device__ void shift(float* taps, int n, float value) {
  for (int i = n; i > 0; i--) taps[i] = taps[i - 1];  // shift goes wrong
  taps[0] = value;
}

// launch: 1, 32
extern "C" __global__ void shifted(const float* x, float* y, float* part, int* flags) {
  float taps[5] = {};
  for (int i = 0; i < 8; i++) shift(taps, 5, x[i]);  // expect: out-of-bounds in shift
  y[threadIdx.x] = taps[4];
}

// launch: 1, 64
extern "C" __global__ void tile_of_eight(const float* x, float* y, float* part, int* flags) {
  __shared__ float s[64];
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  s[threadIdx.x] = x[threadIdx.x];
  tile.sync();
  y[threadIdx.x] = s[threadIdx.x ^ 8];  // expect: race
}

// launch: 2, 64
extern "C" __global__ void bool_of_two_blocks(const float* x, float* y, float* part, int* flags) {
  bool* seen = (bool*)flags;
  if (threadIdx.x == 0) seen[1] = blockIdx.x == 0;  // expect: race
}

struct Stack {
  int top = 0;
  float values[4];
  __device__ void push(float v) { values[top++] = v; }  // stack goes wrong
};

// launch: 1, 32
extern "C" __global__ void stacked(const float* x, float* y, float* part, int* flags) {
  Stack stack;
  for (int i = 0; i < 5 + flags[0]; i++) stack.push(x[i]);  // expect: out-of-bounds in stack
  y[threadIdx.x] = stack.values[threadIdx.x % 4];
}

// launch: 1, 64
extern "C" __global__ void row_that_nobody_filled(const float* x, float* y, float* part, int* flags) {
  __shared__ double s[4][17];
  if (threadIdx.x < 48) s[threadIdx.x / 16][threadIdx.x % 16] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = (float)s[threadIdx.x / 16][threadIdx.x % 16];  // expect: uninitialised
}
