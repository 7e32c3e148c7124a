// Correct kernels that look like mistakes, from well-tested code.
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>
namespace cg = cooperative_groups;

__device__ float sum_of_block(float value, float* scratch) {
  scratch[threadIdx.x] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < 64; i++) sum += scratch[(threadIdx.x + i) % 64];
  __syncthreads();
  return sum;
}

// launch: 1, 64
extern "C" __global__ void one_scratch_for_two_sums(const float* x, float* y, float* part, int* flags) {
  __shared__ float scratch[64];
  const float mean = sum_of_block(x[threadIdx.x], scratch) / 64.0f;
  const float d = x[threadIdx.x] - mean;
  y[threadIdx.x] = d / sqrtf(sum_of_block(d * d, scratch));
}

// launch: 1, 64
extern "C" __global__ void until_nothing_changes(const float* x, float* y, float* part, int* flags) {
  __shared__ float row[64];
  row[threadIdx.x] = x[63 - threadIdx.x];
  int step = 0, swapped = 1;
  while (swapped) {
    __syncthreads();
    const unsigned first = 2 * (threadIdx.x / 2) + step % 2;
    bool mine = false;
    if (threadIdx.x % 2 == 0 && first + 1 < 64 && row[first] > row[first + 1]) {
      const float other = row[first];
      row[first] = row[first + 1], row[first + 1] = other;
      mine = true;
    }
    swapped = __syncthreads_or(mine) || ++step % 2;
  }
  y[threadIdx.x] = row[threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void lanes_that_agree(const float* x, float* y, float* part, int* flags) {
  const unsigned mask = __ballot_sync(0xffffffff, int(x[threadIdx.x]) % 3 == 0);
  float value = x[threadIdx.x];
  if (int(value) % 3 == 0) value = __shfl_sync(mask, value, __ffs(mask) - 1);
  y[threadIdx.x] = value;
}

// launch: 1, 64
extern "C" __global__ void one_atomic_for_each_key(const float* x, float* y, float* part, int* flags) {
  const int key = int(x[threadIdx.x]) % 5;
  const unsigned mine = __match_any_sync(0xffffffff, key);
  const int lane = threadIdx.x % 32, leader = __ffs(mine) - 1;
  int first = 0;
  if (lane == leader) first = atomicAdd(&flags[key], __popc(mine));
  first = __shfl_sync(mine, first, leader);
  y[key * 64 + first + __popc(mine & ((1u << lane) - 1))] = x[threadIdx.x];
}

// Nothing is read if nothing is valid, whatever the address is.
// launch: 1, 64
extern "C" __global__ void copies_of_nothing(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(16) float tile[256];
  const int first = 1000 + 4 * threadIdx.x;
  ptx::cp_async<16>(&tile[4 * threadIdx.x], x + first, first < 1024 ? 16 : 0);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncthreads();
  y[threadIdx.x] = tile[255 - threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void one_memory_for_two_types(const float* x, float* y, float* part, int* flags) {
  __shared__ union {
    float sums[64];
    half rows[128];
    int order[64];
  } both;
  both.sums[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  const float sum = both.sums[threadIdx.x ^ 1];
  __syncthreads();
  both.rows[2 * threadIdx.x] = both.rows[2 * threadIdx.x + 1] = sum;
  __syncthreads();
  const half other = both.rows[127 - threadIdx.x];
  __syncthreads();
  both.order[63 - threadIdx.x] = threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = float(other) + both.order[threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void from_before_the_array(const float* x, float* y, float* part, int* flags) {
  const float* const before = x - 64;
  float* const from_one = y - 1;
  from_one[threadIdx.x + 1] = before[threadIdx.x + 64];
}

// launch: 2, 64
extern "C" __global__ void a_barrier_on_either_side(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  if (blockIdx.x % 2) {
    __syncthreads();
    y[64 + threadIdx.x] = tile[63 - threadIdx.x];
  } else {
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x ^ 8];
  }
}

// Nobody waits for threads that have ended.
// launch: 1, 64
extern "C" __global__ void barriers_of_those_that_are_left(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[64];
  float rest = x[threadIdx.x];
  tile[threadIdx.x] = rest;
  while (rest > 0.0f) {
    __syncthreads();
    rest -= 9.0f;
  }
  y[threadIdx.x] = tile[threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void each_its_own_vector(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(16) float tile[64][4];
  reinterpret_cast<float4*>(tile)[threadIdx.x] = make_float4(x[threadIdx.x], 1.0f, 2.0f, 3.0f);
  float sum = 0.0f;
  for (int i = 0; i < 4; i++) sum += tile[threadIdx.x][i];
  tile[threadIdx.x][3] = sum;
  y[threadIdx.x] = reinterpret_cast<const float4*>(tile)[threadIdx.x].w;
}

// launch: 1, 32
extern "C" __global__ void columns_turned(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[32][32];
  for (int r = 0; r < 32; r++) tile[r][threadIdx.x ^ r] = x[r * 32 + threadIdx.x];
  __syncwarp();
  for (int r = 0; r < 32; r++) y[r * 32 + threadIdx.x] = tile[threadIdx.x][r ^ threadIdx.x];
}

// launch: 2, 64
extern "C" __global__ void slots_by_an_atomic(const float* x, float* y, float* part, int* flags) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i % 3) y[atomicAdd(flags, 1)] = x[i];
}

// launch: 1, 64
extern "C" __global__ void down_past_zero(const float* x, float* y, float* part, int* flags) {
  for (unsigned i = 1023 - threadIdx.x; i < 1024; i -= 64) y[i] = x[i];
}

// launch: 1, 32
extern "C" __global__ void only_what_was_pushed(const float* x, float* y, float* part, int* flags) {
  float stack[8], sum = 0.0f;
  int size = 0;
  for (int i = 0; i < 16; i++) {
    if (size < 8 && (i + threadIdx.x) % 3) stack[size++] = x[i];
    if (size && i % 4 == 3) sum += stack[--size];
  }
  while (size) sum += stack[--size];
  y[threadIdx.x] = sum;
}

// launch: 1, 64
extern "C" __global__ void bits_of_all(const float* x, float* y, float* part, int* flags) {
  __shared__ unsigned bits[2];
  if (threadIdx.x < 2) bits[threadIdx.x] = 0;
  __syncthreads();
  if (x[threadIdx.x] > 9.0f) atomicOr(&bits[threadIdx.x % 2], 1u << threadIdx.x / 2);
  __syncthreads();
  y[threadIdx.x] = bits[threadIdx.x % 2] >> threadIdx.x / 2 & 1;
}

// launch: 1, 64
extern "C" __global__ void groups_in_a_loop(const float* x, float* y, float* part, int* flags) {
  int found = 0;
  for (int i = 0; i < 6; i++) {
    if (int(x[threadIdx.x]) % (i + 2)) continue;
    const auto group = cg::coalesced_threads();
    found += group.size() * (group.thread_rank() + 1);
    if (group.thread_rank() == 0) atomicAdd(&flags[i], int(group.size()));
  }
  y[threadIdx.x] = found;
}

// Both parities, and arrivals without a wait.
// launch: 1, 64
extern "C" __global__ void phases_of_arrivals(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[2][64];
  __shared__ ptx::mbarrier full;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 64);
    ptx::fence_proxy_async();
  }
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < 5; i++) {
    tile[i % 2][threadIdx.x] = x[i * 64 + threadIdx.x];
    ptx::mbarrier_arrive(&full);
    ptx::mbarrier_wait(&full, i % 2);
    sum += tile[i % 2][63 - threadIdx.x];
  }
  y[threadIdx.x] = sum;
}
