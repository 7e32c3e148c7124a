// Kinds of kernels that were found when checked mode was tried with new kernels.
#include <mini_dnn/ptx.cuh>

// launch: 1, 64
extern "C" __global__ void stale_double_buffer(float* x, float* y, float* part, int* flags) {
  __shared__ float tile[2][64];
  const int t = threadIdx.x;
  tile[0][t] = x[t];
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < 4; k++) {
    const int now = k & 1;
    if (k < 3) tile[now ^ 1][t] = x[64 * (k + 1) + t];
    sum += tile[now ^ 1][63 - t];  // expect: race
    __syncthreads();
  }
  y[t] = sum;
}

// launch: 1, 96
extern "C" __global__ void mask_of_whole_warps_in_a_tail(float* x, float* y, float* part, int* flags) {
  const int i = threadIdx.x;
  if (i < 80) {
    float v = x[i];
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);  // expect: warp-mask
    if (i % 32 == 0) y[i / 32] = v;
  }
}

// launch: 1, 64
extern "C" __global__ void last_row_of_a_halo(float* x, float* y, float* part, int* flags) {
  __shared__ float tile[10][10];
  const int tx = threadIdx.x % 8, ty = threadIdx.x / 8;
  tile[ty + 1][tx + 1] = x[ty * 8 + tx];
  if (tx == 0) tile[ty + 1][0] = 0, tile[ty + 1][9] = 0;
  if (ty == 0) tile[0][tx + 1] = 0;
  __syncthreads();
  y[threadIdx.x] = tile[ty + 2][tx + 1] + tile[ty][tx + 1];  // expect: uninitialised
}

// launch: 2, 64
extern "C" __global__ void private_histogram_merged_too_early(float* x, float* y, float* part, int* flags) {
  __shared__ int bins[16];
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&bins[int(x[blockIdx.x * 64 + threadIdx.x]) % 16], 1);
  if (threadIdx.x < 16) atomicAdd(&flags[threadIdx.x], bins[threadIdx.x]);  // expect: race
}

// launch: 1, 64
extern "C" __global__ void barrier_skipped_by_an_early_return(float* x, float* y, float* part, int* flags) {
  __shared__ float s[64];
  const int t = threadIdx.x;
  if (x[t] > 50) return;
  s[t] = x[t];
  __syncthreads();
  y[t] = s[63 - t];  // expect: uninitialised
}

// launch: 1, 64
extern "C" __global__ void mbarrier_reused_with_one_parity(float* x, float* y, float* part, int* flags) {
  __shared__ ptx::mbarrier full;
  __shared__ float s[32];
  if (threadIdx.x == 0) ptx::mbarrier_init(&full, 32);
  __syncthreads();
  for (int k = 0; k < 2; k++) {
    if (threadIdx.x < 32) {
      s[threadIdx.x] = x[32 * k + threadIdx.x];
      ptx::mbarrier_arrive(&full);
    } else {
      ptx::mbarrier_wait(&full, 0);  // expect: deadlock
      y[32 * k + threadIdx.x - 32] = s[threadIdx.x - 32];
    }
  }
}

// launch: 4, 64
extern "C" __global__ void persistent_blocks_take_work(float* x, float* y, float* part, int* flags) {
  __shared__ int next;
  for (;;) {
    if (threadIdx.x == 0) next = atomicAdd(flags, 1);
    __syncthreads();
    const int mine = next;
    __syncthreads();
    if (mine >= 16) return;
    y[mine * 64 + threadIdx.x] = 2 * x[mine * 64 + threadIdx.x];
  }
}

// launch: 1, 64
extern "C" __global__ void radix_sort_by_one_bit(float* x, float* y, float* part, int* flags) {
  __shared__ unsigned key[2][64];
  __shared__ int zeros[64];
  const int t = threadIdx.x;
  key[0][t] = (t * 37) % 64;
  for (int bit = 0; bit < 6; bit++) {
    unsigned *from = key[bit & 1], *to = key[~bit & 1];
    __syncthreads();
    const int one = from[t] >> bit & 1;
    zeros[t] = !one;
    __syncthreads();
    int before = 0, all = 0;
    for (int j = 0; j < 64; j++) all += zeros[j], before += j < t ? zeros[j] : 0;
    to[one ? all + t - before : before] = from[t];
  }
  __syncthreads();
  y[t] = key[0][t];
}

// launch: 1, 64
extern "C" __global__ void hash_table_by_swaps(float* x, float* y, float* part, int* flags) {
  const int key = int(x[threadIdx.x]) * 5 + 1;
  int at = key * 11 % 64;
  while (atomicCAS(&flags[at], 0, key) != 0) at = (at + 1) % 64;
  y[threadIdx.x] = at;
}

// launch: 2, 128
extern "C" __global__ void async_copies_in_three_stages(float* x, float* y, float* part, int* flags) {
  __shared__ __align__(16) float tile[3][128];
  const int t = threadIdx.x;
  auto load = [&](int k) {
    if (t < 32 && k < 4) ptx::cp_async<16>(&tile[k % 3][4 * t], x + 128 * k + 4 * t);
    ptx::cp_async_commit();
  };
  load(0), load(1);
  float sum = 0;
  for (int k = 0; k < 4; k++) {
    ptx::cp_async_wait<1>();
    __syncthreads();
    load(k + 2);
    sum += tile[k % 3][127 - t];
  }
  y[blockIdx.x * 128 + t] = sum;
}

// launch: 1, 64
extern "C" __global__ void prefix_of_blelloch(float* x, float* y, float* part, int* flags) {
  __shared__ float s[128];
  const int t = threadIdx.x;
  s[2 * t] = x[2 * t], s[2 * t + 1] = x[2 * t + 1];
  int offset = 1;
  for (int d = 64; d > 0; d >>= 1) {
    __syncthreads();
    if (t < d) s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1];
    offset *= 2;
  }
  if (t == 0) s[127] = 0;
  for (int d = 1; d < 128; d *= 2) {
    offset >>= 1;
    __syncthreads();
    if (t < d) {
      const int a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1;
      const float v = s[a];
      s[a] = s[b], s[b] += v;
    }
  }
  __syncthreads();
  y[2 * t] = s[2 * t], y[2 * t + 1] = s[2 * t + 1];
}

// launch: 1, 32
extern "C" __global__ void copies_to_global_memory(const float* x, float* y, float* part, int* flags) {
  part[threadIdx.x] = x[threadIdx.x];
  ptx::cp_async<4>(y + threadIdx.x, x + threadIdx.x);  // expect: fault
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
}
