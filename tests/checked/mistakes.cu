// One mistake in each kernel. Otherwise the kernels are those of unusual.cu.
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>

// launch: 1, 64
extern "C" __global__ void one_buffer_in_turn(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[2][64];
  tile[0][threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < 8; i++) {
    tile[0][threadIdx.x] = x[i * 64 + threadIdx.x];
    sum += tile[i % 2 * 0][63 - threadIdx.x];  // expect: race
    __syncthreads();
  }
  y[threadIdx.x] = sum;
}

// launch: 1, 64
extern "C" __global__ void waits_for_one_too_few(const float* x, float* y, float* part, int* flags) {
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
    ptx::cp_async_wait<2>();
    __syncthreads();
    load(i + 2);
    sum += tile[i % 3][4 * t];  // expect: async
  }
  y[t] = sum;
}

// launch: 3, 64
extern "C" __global__ void next_tile_too_early(const float* x, float* y, float* part, int* flags) {
  __shared__ int tile;
  for (;;) {
    if (threadIdx.x == 0) tile = atomicAdd(flags, 1);
    __syncthreads();
    const int mine = tile;  // expect: race
    if (mine >= 13) return;
    y[mine * 64 + threadIdx.x] = x[mine * 64 + threadIdx.x];
  }
}

// launch: 4, 32
extern "C" __global__ void sum_after_its_flag(const float* x, float* y, float* part, int* flags) {
  volatile int* const states = flags;
  if (threadIdx.x > 0) return;
  float total = 0.0f;
  if (blockIdx.x > 0) {
    while (states[blockIdx.x - 1] == 0) __nanosleep(20);
    total = part[blockIdx.x - 1];  // expect: race
  }
  states[blockIdx.x] = 1;
  part[blockIdx.x] = total + x[blockIdx.x];
}

// launch: 1, 32
extern "C" __global__ void lanes_in_step(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[32];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  for (int d = 16; d; d /= 2)
    if (threadIdx.x < d) tile[threadIdx.x] += tile[threadIdx.x + d];  // expect: race
  if (threadIdx.x == 0) y[0] = tile[0];
}

// launch: 1, 32
extern "C" __global__ void all_lanes_of_some(const float* x, float* y, float* part, int* flags) {
  float value = x[threadIdx.x];
  if (threadIdx.x < 20) value += __shfl_down_sync(0xffffffff, value, 1);  // expect: warp-mask
  y[threadIdx.x] = value;
}

// launch: 5, 256
extern "C" __global__ void tail_of_the_grid(const float* x, float* y, float* part, int* flags) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = 2.0f * x[i];  // expect: out-of-bounds
}

// launch: 1, 64
extern "C" __global__ void vectors_without_a_tail(const float* x, float* y, float* part, int* flags) {
  const float* const row = x + 1024 - 30;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int i = 0; i < 30; i += 4) {
    const float4 v = make_float4(row[i], row[i + 1], row[i + 2], row[i + 3]);  // expect: out-of-bounds
    sum.x += v.x + v.y + v.z + v.w;
  }
  y[threadIdx.x] = sum.x;
}

// launch: 1, 32
extern "C" __global__ void row_of_vectors(const float* x, float* y, float* part, int* flags) {
  const float4 v = *(const float4*)(x + threadIdx.x * 30);  // expect: misaligned
  y[threadIdx.x] = v.x + v.w;
}

// launch: 4, 64
extern "C" __global__ void last_one_is_told_too_early(const float* x, float* y, float* part, int* flags) {
  __shared__ bool last;
  part[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(flags, 1) == gridDim.x - 1;
  if (!last) return;  // expect: race
  y[threadIdx.x] = part[threadIdx.x] + part[64 + threadIdx.x];
}

// launch: 4, 64
extern "C" __global__ void grid_barrier_of_each_thread(const float* x, float* y, float* part, int* flags) {
  part[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(flags, 1);
    while (atomicAdd(flags, 0) < gridDim.x) {
    }
  }
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = part[(3 - blockIdx.x) * 64 + 63 - threadIdx.x];  // expect: race
}

// launch: 1, 64
extern "C" __global__ void bins_of_shared_memory(const float* x, float* y, float* part, int* flags) {
  __shared__ int bins[8];
  if (threadIdx.x < 8) bins[threadIdx.x] = 0;
  __syncthreads();
  bins[int(x[threadIdx.x]) % 8]++;  // expect: race
  __syncthreads();
  if (threadIdx.x < 8) y[threadIdx.x] = bins[threadIdx.x];
}

// launch: 3, 32
extern "C" __global__ void bins_of_the_grid(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x == 0) flags[int(x[blockIdx.x]) / 100] += 1;  // expect: race
}

// launch: 1, 256
extern "C" __global__ void turned_at_once(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[16][17];
  const int r = threadIdx.x / 16, c = threadIdx.x % 16;
  tile[r][c] = x[threadIdx.x];
  __syncthreads();
  tile[r][c] = tile[c][r];  // expect: race
  __syncthreads();
  y[threadIdx.x] = tile[r][c];
}

// launch: 1, 64
extern "C" __global__ void bytes_of_too_many_bins(const float* x, float* y, float* part, int* flags) {
  __shared__ unsigned char counts[16][64];
  for (int bin = 0; bin < 16; bin++) counts[bin][threadIdx.x] = 0;
  for (int i = threadIdx.x; i < 512; i += 64) counts[int(x[i]) / 30][threadIdx.x]++;  // expect: out-of-bounds
  __syncthreads();
  y[threadIdx.x] = counts[3][threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void bytes_of_other_threads(const float* x, float* y, float* part, int* flags) {
  __shared__ unsigned char counts[64];
  counts[threadIdx.x] = 0;
  counts[threadIdx.x / 2] += 1;  // expect: race
  __syncthreads();
  y[threadIdx.x] = counts[threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void some_go_home_too_early(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[64];
  if (threadIdx.x >= 50) return;
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[63 - threadIdx.x];  // expect: uninitialised
}

// launch: 1, 64
extern "C" __global__ void largest_of_anything(const float* x, float* y, float* part, int* flags) {
  __shared__ int most;
  atomicMax(&most, int(x[threadIdx.x]));  // expect: uninitialised
  __syncthreads();
  y[threadIdx.x] = most;
}

// launch: 1, 64
extern "C" __global__ void swap_that_never_fits(const float* x, float* y, float* part, int* flags) {
  int old = flags[0];
  while (atomicCAS(flags + 1, 1, old + 1) != 1) {  // expect: endless
  }
  y[threadIdx.x] = old;
}

// launch: 1, 32
extern "C" __global__ void ring_of_one_more(const float* x, float* y, float* part, int* flags) {
  float ring[5];
  for (int i = 0; i < 5; i++) ring[i] = 0.0f;
  float sum = 0.0f;
  for (int i = 0; i < 32; i++) sum += x[i] - ring[(i + flags[0]) % 6];  // expect: out-of-bounds
  y[threadIdx.x] = sum;
}

// launch: 2, 64
extern "C" __global__ void scratch_of_another_block(const float* x, float* y, float* part, int* flags) {
  part[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = part[(1 - blockIdx.x) * 64 + threadIdx.x];  // expect: uninitialised
}

// launch: 1, 64
extern "C" __global__ void halves_of_one_float(const float* x, float* y, float* part, int* flags) {
  __shared__ float scratch[32];
  half* const halves = reinterpret_cast<half*>(scratch);
  halves[threadIdx.x] = __float2half(x[threadIdx.x]);
  y[threadIdx.x] = __half2float(halves[threadIdx.x ^ 1]);  // expect: race
}

// launch: 1, 64
extern "C" __global__ void barrier_of_one_branch(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  if (x[threadIdx.x] > 20.0f) __syncthreads();
  y[threadIdx.x] = tile[63 - threadIdx.x];
  __syncthreads();  // expect: divergence
  tile[threadIdx.x] = 0.0f;
}

// launch: 1, 64
extern "C" __global__ void copied_by_a_builtin_name(const float* x, float* y, float* part, int* flags) {
  __builtin_memset(part, 0, 64);  // expect: race
  __builtin_memcpy(y + 16 * threadIdx.x, x, 64);
}

// launch: 1, 64
extern "C" __global__ void copied_past_the_end(const float* x, float* y, float* part, int* flags) {
  __builtin_memcpy(y + 16 * (threadIdx.x + 1), x, 64);  // expect: out-of-bounds
}

// launch: 1, 32
extern "C" __global__ void more_bytes_than_the_copy(const float* x, float* y, float* part, int* flags) {
  __shared__ alignas(16) float tile[128];
  ptx::cp_async<16>(tile + 4 * threadIdx.x, x + 4 * threadIdx.x, 17);  // expect: fault
}

__device__ float cubed(float x);

// launch: 1, 32
extern "C" __global__ void halves_beyond_the_end(const float* x, float* y, float* part, int* flags) {
  __shared__ half a[48];
  a[threadIdx.x + 16] = cubed(x[threadIdx.x]);
  __syncthreads();
  y[threadIdx.x] = a[47 + threadIdx.x];  // expect: out-of-bounds
}

// It has a variable of the same name and another type.
__device__ float cubed(float x) {
  const float a = x * x;
  return a * x;
}

// launch: 1, 32
extern "C" __global__ void mbarrier_of_each_thread(const float* x, float* y, float* part, int* flags) {
  ptx::mbarrier all;
  ptx::mbarrier_init(&all, 1);  // expect: fault
  ptx::mbarrier_arrive(&all);
  ptx::mbarrier_wait(&all, 0);
}

// A vector of which one element is not written.
// launch: 1, 32
extern "C" __global__ void last_of_four(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(16) float s[32][4];
  for (int i = 0; i < 3; i++) s[threadIdx.x][i] = x[threadIdx.x];
  reinterpret_cast<float4*>(y)[threadIdx.x] = *reinterpret_cast<float4*>(s[threadIdx.x]);  // expect: uninitialised
}
