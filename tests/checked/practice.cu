// Mistakes that students make, and mistakes in kernels of libraries.
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>
#include <mma.h>
using namespace nvcuda;

// launch: 1, 32
extern "C" __global__ void mask_of_an_outer_branch(const float* x, float* y, float* part, int* flags) {
  const unsigned mask = __ballot_sync(0xffffffff, x[threadIdx.x] > 7.0f);
  float value = x[threadIdx.x];
  if (value > 7.0f && threadIdx.x % 4 != 3) value = __shfl_sync(mask, value, 8);  // expect: warp-mask
  __syncwarp();
  y[threadIdx.x] = value;
}

// launch: 1, 32
extern "C" __global__ void active_before_the_branch(const float* x, float* y, float* part, int* flags) {
  const unsigned mask = __activemask();
  float value = x[threadIdx.x];
  if (threadIdx.x % 2) value += __shfl_xor_sync(mask, value, 2);  // expect: warp-mask
  __syncwarp();
  y[threadIdx.x] = value;
}

// launch: 1, 48
extern "C" __global__ void butterfly_of_half_a_warp(const float* x, float* y, float* part, int* flags) {
  float value = x[threadIdx.x];
  for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffff, value, d);  // expect: warp-mask
  y[threadIdx.x] = value;
}

// launch: 2, 256
extern "C" __global__ void vectors_rounded_up(const float* x, float* y, float* part, int* flags) {
  const int n = 1025, i = blockIdx.x * 256 + threadIdx.x;
  if (i >= (n + 3) / 4) return;
  const float4 four = reinterpret_cast<const float4*>(x)[i];  // expect: out-of-bounds
  y[i % 256] = four.x + four.w;
}

// launch: 1, 64
extern "C" __global__ void copy_without_its_commit(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(16) float tile[2][256];
  const int t = threadIdx.x;
  ptx::cp_async<16>(&tile[0][4 * t], x + 4 * t);
  ptx::cp_async_commit();
  ptx::cp_async<16>(&tile[1][4 * t], x + 256 + 4 * t);
  ptx::cp_async_wait<0>();
  y[t] = tile[0][4 * t] + tile[1][4 * t];  // expect: async
}

// launch: 1, 64
extern "C" __global__ void copy_of_another_thread(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(16) float tile[256];
  ptx::cp_async<16>(&tile[4 * threadIdx.x], x + 4 * threadIdx.x);
  ptx::cp_async_commit();
  __syncthreads();
  ptx::cp_async_wait<0>();
  for (int i = 0; i < 4; i++) y[64 * i + threadIdx.x] = tile[64 * i + threadIdx.x];  // expect: async
}

// launch: 1, 64
extern "C" __global__ void two_steps_ahead_in_two_buffers(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[2][64];
  const int t = threadIdx.x;
  for (int i = 0; i < 2; i++) tile[i][t] = x[64 * i + t];
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < 4; i++) {
    sum += tile[i % 2][63 - t];
    tile[(i + 2) % 2][t] = x[64 * (i + 2) + t];  // expect: race
    __syncthreads();
  }
  y[t] = sum;
}

// launch: 1, 64
extern "C" __global__ void next_tile_of_the_last_step(const float* x, float* y, float* part, int* flags) {
  float next = x[threadIdx.x], sum = 0.0f;
  for (int i = 0; i < 16; i++) {
    const float now = next;
    next = x[64 * (i + 1) + threadIdx.x];  // expect: out-of-bounds
    sum += now;
  }
  y[threadIdx.x] = sum;
}

// launch: 1, 64
extern "C" __global__ void offset_in_elements(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(16) char raw[64 * sizeof(int) + 64 * sizeof(half)];
  int* const counts = reinterpret_cast<int*>(raw);
  half* const tile = reinterpret_cast<half*>(raw + 64);
  counts[threadIdx.x] = threadIdx.x;
  tile[threadIdx.x] = x[threadIdx.x];  // expect: race
  __syncthreads();
  y[threadIdx.x] = float(tile[63 - threadIdx.x]) + counts[threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void is_there_room(const float* x, float* y, float* part, int* flags) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  if (count < 32) {
    const int slot = atomicAdd(&count, 1);  // expect: race
    y[slot] = x[threadIdx.x];
  }
}

// launch: 2, 64
extern "C" __global__ void stride_of_one_block(const float* x, float* y, float* part, int* flags) {
  for (int i = blockIdx.x * 64 + threadIdx.x; i < 1024; i += 64) y[i] = 2.0f * x[i];  // expect: race
}

__device__ float sum_of_block(float value, float* scratch) {
  scratch[threadIdx.x] = value;  // sum_of_block goes wrong
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < 64; i++) sum += scratch[i];
  return sum;
}

// launch: 1, 64
extern "C" __global__ void scratch_used_twice(const float* x, float* y, float* part, int* flags) {
  __shared__ float scratch[64];
  const float mean = sum_of_block(x[threadIdx.x], scratch) / 64.0f;
  const float d = x[threadIdx.x] - mean;
  y[threadIdx.x] = d / sqrtf(sum_of_block(d * d, scratch));  // expect: race in sum_of_block
}

// launch: 1, 64
extern "C" __global__ void maximum_then_sum(const float* x, float* y, float* part, int* flags) {
  __shared__ float shared;
  if (threadIdx.x == 0) shared = x[63];
  __syncthreads();
  const float e = expf(x[threadIdx.x] - shared);
  if (threadIdx.x == 0) shared = 0.0f;  // expect: race
  __syncthreads();
  atomicAdd(&shared, e);
  __syncthreads();
  y[threadIdx.x] = e / shared;
}

// launch: 1, 32
extern "C" __global__ void bins_cleared_by_half(const float* x, float* y, float* part, int* flags) {
  __shared__ int bins[64];
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += 32) atomicAdd(&bins[int(x[i]) % 64], 1);  // expect: uninitialised
  __syncthreads();
  y[threadIdx.x] = bins[threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void halo_of_one_side(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[66];
  tile[threadIdx.x + 1] = x[threadIdx.x];
  if (threadIdx.x == 0) tile[0] = 0.0f;
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x] + tile[threadIdx.x + 1] + tile[threadIdx.x + 2];  // expect: uninitialised
}

// launch: 1, 64
extern "C" __global__ void rows_of_a_taller_tile(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[16][33];
  const int column = threadIdx.x % 32, row = threadIdx.x / 32;
  for (int r = 0; r < 32; r += 2) tile[row + r][column] = x[(row + r) * 32 + column];  // expect: out-of-bounds
  __syncthreads();
  for (int r = 0; r < 32; r += 2) y[(row + r) * 32 + column] = tile[column % 16][row + r];
}

// launch: 1, 64
extern "C" __global__ void pairs_from_an_odd_column(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(16) half row[130];
  row[threadIdx.x] = row[64 + threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x < 2) row[128 + threadIdx.x] = 0.0f;
  __syncthreads();
  const half2 pair = *reinterpret_cast<const half2*>(row + 1 + 2 * threadIdx.x);  // expect: misaligned
  y[threadIdx.x] = __low2float(pair) + __high2float(pair);
}

// launch: 1, 64
extern "C" __global__ void words_of_nibbles(const float* x, float* y, float* part, int* flags) {
  float sum = 0.0f;
  for (int k = threadIdx.x; k < 512; k += 64) sum += (flags[k / 4] >> k % 8 * 4 & 15) * x[k];  // expect: out-of-bounds
  y[threadIdx.x] = sum;
}

// launch: 1, 128
extern "C" __global__ void more_warps_than_slots(const float* x, float* y, float* part, int* flags) {
  __shared__ float sums[2];
  float value = x[threadIdx.x];
  for (int d = 16; d > 0; d /= 2) value += __shfl_down_sync(0xffffffff, value, d);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;  // expect: out-of-bounds
  __syncthreads();
  if (threadIdx.x == 0) y[0] = sums[0] + sums[1];
}

// launch: 1, 64
extern "C" __global__ void barrier_until_each_is_done(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[64];
  float rest = x[threadIdx.x];
  tile[threadIdx.x] = rest;
  while (rest > 0.0f) {
    __syncthreads();
    rest -= 9.0f;
  }
  __syncthreads();  // expect: divergence
  y[threadIdx.x] = tile[threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void next_one_before_the_barrier(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[64];
  for (int i = 0; i < 3; i++) {
    if (i * 64 + threadIdx.x >= 150) continue;
    tile[threadIdx.x] = x[i * 64 + threadIdx.x];
    __syncthreads();  // expect: divergence
    y[i * 64 + threadIdx.x] = tile[threadIdx.x];
  }
  __syncthreads();
  part[threadIdx.x] = tile[63 - threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void labels_from_one(const float* x, float* y, float* part, int* flags) {
  const int label = int(x[threadIdx.x]) % 8;
  atomicAdd(&flags[label - 1], 1);  // expect: out-of-bounds
}

// launch: 1, 32
extern "C" __global__ void one_of_the_best_falls_out(const float* x, float* y, float* part, int* flags) {
  float best[4] = {};
  for (int i = threadIdx.x; i < 256; i += 32) {
    int slot = 3;
    while (slot > 0 && best[slot - 1] < x[i]) slot--;
    for (int j = 3; j >= slot; j--) best[j + 1] = best[j];  // expect: out-of-bounds
    best[slot] = x[i];
  }
  y[threadIdx.x] = best[0];
}

// launch: 1, 256
extern "C" __global__ void two_pitches(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[16][17];
  const float* const flat = &tile[0][0];
  tile[threadIdx.x / 16][threadIdx.x % 16] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = flat[threadIdx.x];  // expect: uninitialised
}

// launch: 1, 32
extern "C" __global__ void stored_and_read_at_once(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(32) float tile[256];
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums;
  wmma::fill_fragment(sums, x[0]);
  wmma::store_matrix_sync(tile, sums, 16, wmma::mem_row_major);
  for (int i = threadIdx.x; i < 256; i += 32) y[i] = tile[i];  // expect: race
}

// launch: 1, 32
extern "C" __global__ void rows_of_an_odd_pitch(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(16) half tile[8][20];
  for (int i = threadIdx.x; i < 160; i += 32) tile[i / 20][i % 20] = x[i];
  __syncthreads();
  unsigned a[2];
  ptx::ldmatrix(a, &tile[threadIdx.x % 8][threadIdx.x / 8 % 2 * 8]);  // expect: misaligned
  y[threadIdx.x] = a[0] + a[1];
}

// launch: 1, 64
extern "C" __global__ void bulk_copy_from_anywhere(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(128) float tile[64];
  __shared__ ptx::mbarrier full;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive_expect_tx(&full, sizeof tile);
    ptx::bulk_load(tile, x + 3, sizeof tile, &full);  // expect: misaligned
  }
  __syncthreads();
  ptx::mbarrier_wait(&full, 0);
  y[threadIdx.x] = tile[threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void the_phase_before_the_first(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[64];
  __shared__ ptx::mbarrier full;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 64);
    ptx::fence_proxy_async();
  }
  __syncthreads();
  tile[threadIdx.x] = x[threadIdx.x];
  ptx::mbarrier_arrive(&full);
  ptx::mbarrier_wait(&full, 1);
  y[threadIdx.x] = tile[63 - threadIdx.x];  // expect: race
}

// launch: 1, 64
extern "C" __global__ void arrives_before_it_is_made(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[64];
  __shared__ ptx::mbarrier full;
  if (threadIdx.x == 0) ptx::mbarrier_init(&full, 64);
  tile[threadIdx.x] = x[threadIdx.x];
  ptx::mbarrier_arrive(&full);  // expect: fault
  ptx::mbarrier_wait(&full, 0);
  y[threadIdx.x] = tile[63 - threadIdx.x];
}
