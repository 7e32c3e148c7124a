// Correct kernels with unusual code.
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>

// launch: 2, 64
extern "C" __global__ void two_buffers_in_turn(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[2][64];
  const int t = threadIdx.x;
  tile[0][t] = x[t];
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < 8; i++) {
    if (i < 7) tile[(i + 1) % 2][t] = x[(i + 1) * 64 + t];
    sum += tile[i % 2][63 - t];
    __syncthreads();
  }
  y[blockIdx.x * 64 + t] = sum;
}

// launch: 1, 64
extern "C" __global__ void pipeline_of_copies(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(16) float tile[3][256];
  const int t = threadIdx.x;
  auto load = [&](int i) {
    if (i < 4) ptx::cp_async<16>(&tile[i % 3][4 * t], x + 256 * i + 4 * t);
    ptx::cp_async_commit();
  };
  load(0);
  load(1);
  float sum = 0.0f;
  for (int i = 0; i < 4; i++) {
    ptx::cp_async_wait<1>();
    __syncthreads();
    load(i + 2);
    for (int j = 0; j < 4; j++) sum += tile[i % 3][255 - 4 * t - j];
  }
  y[t] = sum;
}

// Each block looks back until it finds the sum of everything before it.
// launch: 6, 32
extern "C" __global__ void look_back(const float* x, float* y, float* part, int* flags) {
  __shared__ float before;
  __shared__ int ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(&flags[63], 1);
  __syncthreads();
  const int b = ticket;
  float sum = x[b * 32 + threadIdx.x];
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
  if (threadIdx.x == 0) {
    volatile float *const sums = part, *const totals = part + 32;
    volatile int* const states = flags;
    sums[b] = sum;
    __threadfence();
    states[b] = 1;
    float total = 0.0f;
    for (int i = b - 1; i >= 0; i--) {
      int state;
      while ((state = states[i]) == 0) __nanosleep(20);
      __threadfence();
      if (state == 2) {
        total += totals[i];
        break;
      }
      total += sums[i];
    }
    totals[b] = total + sum;
    __threadfence();
    states[b] = 2;
    before = total;
  }
  __syncthreads();
  y[b * 32 + threadIdx.x] = before + x[b * 32 + threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void warps_by_themselves(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[64];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  tile[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  for (int d = 16; d; d /= 2) {
    if (lane < d) tile[warp * 32 + lane] += tile[warp * 32 + lane + d];
    __syncwarp();
  }
  if (lane == 0) y[warp] = tile[warp * 32];
}

// launch: 1, 32
extern "C" __global__ void lanes_that_remain(const float* x, float* y, float* part, int* flags) {
  const unsigned mask = __ballot_sync(0xffffffff, threadIdx.x < 20);
  if (threadIdx.x >= 20) return;
  float sum = x[threadIdx.x];
  for (int d = 1; d < 20; d *= 2) {
    const float other = __shfl_sync(mask, sum, min(int(threadIdx.x) + d, 19));
    if (threadIdx.x + d < 20) sum += other;
  }
  __syncwarp(mask);
  if (threadIdx.x == 0) y[0] = sum;
}

// launch: 1, 32
extern "C" __global__ void one_for_the_warp(const float* x, float* y, float* part, int* flags) {
  const unsigned active = __ballot_sync(0xffffffff, x[threadIdx.x] > 5.0f);
  int first = 0;
  if (x[threadIdx.x] > 5.0f) {
    const int leader = __ffs(active) - 1;
    if (threadIdx.x == leader) first = atomicAdd(flags, __popc(active));
    first = __shfl_sync(active, first, leader);
    y[first + __popc(active & ((1u << threadIdx.x) - 1))] = x[threadIdx.x];
  }
}

// Two halves in each float of a scratch buffer, written by one thread each.
// launch: 1, 64
extern "C" __global__ void halves_in_floats(const float* x, float* y, float* part, int* flags) {
  __shared__ float scratch[32];
  half* const halves = reinterpret_cast<half*>(scratch);
  halves[threadIdx.x] = __float2half(x[threadIdx.x]);
  __syncthreads();
  y[threadIdx.x] = __half2float(halves[63 - threadIdx.x]);
}

// launch: 3, 32
extern "C" __global__ void strides_of_the_grid(const float* x, float* y, float* part, int* flags) {
  const int n = 1000, stride = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) y[i] = 2.0f * x[i];
}

// launch: 3, 32
extern "C" __global__ void vectors_and_a_tail(const float* x, float* y, float* part, int* flags) {
  const int n = 1001, stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = first; i < n / 4; i += stride) ((float4*)y)[i] = ((const float4*)x)[i];
  for (int i = n / 4 * 4 + first; i < n; i += stride) y[i] = x[i];
}

// Threads past the end compute the last element again, and do not store it.
// launch: 1, 64
extern "C" __global__ void last_one_again(const float* x, float* y, float* part, int* flags) {
  const int i = min(int(threadIdx.x), 49);
  const float value = x[i] * x[i];
  if (threadIdx.x < 50) y[i] = value;
}

// A barrier of all blocks, for which each waits.
// launch: 4, 64
extern "C" __global__ void barrier_of_the_grid(const float* x, float* y, float* part, int* flags) {
  part[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x] + blockIdx.x;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(flags, 1);
    while (atomicAdd(flags, 0) < gridDim.x) {
    }
    __threadfence();
  }
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = part[(gridDim.x - 1 - blockIdx.x) * 64 + 63 - threadIdx.x];
}

// One warp loads tiles, and the other uses them. Each informs the other with a counter.
// launch: 1, 64
extern "C" __global__ void one_brings_one_uses(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[2][32];
  __shared__ volatile int full, empty;
  if (threadIdx.x == 0) {
    full = 0;
    empty = 2;
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    for (int i = 0; i < 6; i++) {
      while (empty <= i) __nanosleep(10);
      __syncwarp();
      tile[i % 2][lane] = x[i * 32 + lane];
      __threadfence_block();
      __syncwarp();
      if (lane == 0) full = i + 1;
    }
  } else {
    float sum = 0.0f;
    for (int i = 0; i < 6; i++) {
      while (full <= i) __nanosleep(10);
      __syncwarp();
      sum += tile[i % 2][31 - lane];
      __threadfence_block();
      __syncwarp();
      if (lane == 0) empty = i + 3;
    }
    y[lane] = sum;
  }
}

// A histogram of the block: bytes per thread first, then atomics.
// launch: 2, 64
extern "C" __global__ void bytes_of_threads(const float* x, float* y, float* part, int* flags) {
  __shared__ unsigned char counts[16][64];
  for (int bin = 0; bin < 16; bin++) counts[bin][threadIdx.x] = 0;
  for (int i = threadIdx.x; i < 512; i += 64) counts[int(x[i]) % 16][threadIdx.x]++;
  __syncthreads();
  if (threadIdx.x < 16) {
    int sum = 0;
    for (int t = 0; t < 64; t++) sum += counts[threadIdx.x][(t + threadIdx.x) % 64];
    atomicAdd(&flags[threadIdx.x], sum);
  }
}

// Elements of a triangle, whose row is computed by a square root and corrected.
// launch: 1, 128
extern "C" __global__ void row_by_a_root(const float* x, float* y, float* part, int* flags) {
  int row = int((sqrtf(8.0f * threadIdx.x + 1.0f) - 1.0f) / 2.0f);
  while (row * (row + 1) / 2 > threadIdx.x) row--;
  while ((row + 1) * (row + 2) / 2 <= threadIdx.x) row++;
  y[row * 16 + threadIdx.x - row * (row + 1) / 2] = x[threadIdx.x];
}

// Threads return early, a whole warp at a time, and the others use only warp barriers.
// launch: 1, 96
extern "C" __global__ void warps_go_home(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[96];
  tile[threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x >= 64) return;
  __syncwarp();
  y[threadIdx.x] = tile[threadIdx.x ^ 31];
}

// A maximum of floats by atomics of their bits.
// launch: 2, 64
extern "C" __global__ void largest_by_bits(const float* x, float* y, float* part, int* flags) {
  __shared__ int most;
  if (threadIdx.x == 0) most = __float_as_int(0.0f);
  __syncthreads();
  atomicMax(&most, __float_as_int(x[blockIdx.x * 64 + threadIdx.x]));
  __syncthreads();
  if (threadIdx.x == 0) atomicMax(&flags[0], most);
}

// Compare and swap in a loop, for sums of two halves at once.
// launch: 2, 64
extern "C" __global__ void sums_by_swaps(const float* x, float* y, float* part, int* flags) {
  unsigned* const word = (unsigned*)&flags[threadIdx.x % 4];
  unsigned old = atomicAdd(word, 0), assumed;
  do {
    assumed = old;
    const half2 sum = __hadd2(*reinterpret_cast<half2*>(&assumed), __float2half2_rn(1.0f));
    old = atomicCAS(word, assumed, *reinterpret_cast<const unsigned*>(&sum));
  } while (old != assumed);
}

// A tile that is transposed in place by pairs, and padded against bank conflicts.
// launch: 1, 256
extern "C" __global__ void turned_in_place(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[16][17];
  const int r = threadIdx.x / 16, c = threadIdx.x % 16;
  tile[r][c] = x[threadIdx.x];
  __syncthreads();
  if (r < c) {
    const float upper = tile[r][c], lower = tile[c][r];
    tile[r][c] = lower;
    tile[c][r] = upper;
  }
  __syncthreads();
  y[threadIdx.x] = tile[r][c];
}

// Blocks write neighbouring bytes of one word.
// launch: 4, 32
extern "C" __global__ void bytes_of_blocks(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x == 0) ((unsigned char*)part)[blockIdx.x] = blockIdx.x;
}

// Dynamic indices into an array of the thread that all lie within it, and a pointer one past its end.
// launch: 1, 32
extern "C" __global__ void ring_of_the_thread(const float* x, float* y, float* part, int* flags) {
  float ring[5];
  for (float* p = ring; p != ring + 5; p++) *p = 0.0f;
  float sum = 0.0f;
  for (int i = 0; i < 32; i++) {
    sum += x[i] - ring[i % 5];
    ring[i % 5] = x[i];
  }
  y[threadIdx.x] = sum;
}
