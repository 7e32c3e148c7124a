// Threads that wait for others in a loop. On a GPU all threads of a block make progress, and so do all resident blocks.
#include <mini_dnn/ptx.cuh>

// launch: 3, 128
extern "C" __global__ void first_waits_for_last(const float* x, float* y, float* part, volatile int* flags) {
  volatile int* const flag = flags + blockIdx.x;
  if (threadIdx.x == 0) {
    while (*flag == 0) {
    }
    y[blockIdx.x] = part[blockIdx.x];
  }
  if (threadIdx.x == 127) {
    part[blockIdx.x] = x[blockIdx.x];
    __threadfence();
    *flag = 1;
  }
}

// launch: 3, 128
extern "C" __global__ void by_turns(const float* x, float* y, float* part, int* flags) {
  for (int turn = 0; turn < 4; turn++) {
    const int mine = 4 * turn + 3 - threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) {
      while (atomicAdd(&flags[blockIdx.x], 0) < mine) {
      }
      y[blockIdx.x * 16 + mine] = x[mine];
      __threadfence();
      atomicAdd(&flags[blockIdx.x], 1);
    }
    __syncthreads();
  }
}

// The first block waits for the last one.
// launch: 5, 32
extern "C" __global__ void backwards(const float* x, float* y, float* part, volatile int* flags) {
  const int b = blockIdx.x, t = threadIdx.x;
  __shared__ float mine[32];
  mine[t] = x[b * 32 + t];
  __syncthreads();
  float after = 0.0f;
  if (b + 1 < gridDim.x) {
    while (flags[b + 1] == 0) __nanosleep(40);
    after = part[(b + 1) * 32 + t];
  }
  part[b * 32 + t] = after + mine[31 - t];
  __threadfence();
  __syncthreads();
  if (t == 0) flags[b] = 1;
}

// Copies and an mbarrier of each block while it waits for the next one.
// launch: 5, 32
extern "C" __global__ void backwards_with_copies(const float* x, float* y, float* part, volatile int* flags) {
  const int b = blockIdx.x, t = threadIdx.x;
  __shared__ alignas(16) float first[32], second[32];
  __shared__ ptx::mbarrier full;
  if (t == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&full, 128);
    ptx::bulk_load(first, x + b * 32, 128, &full);
  }
  if (t < 8) ptx::cp_async<16>(second + 4 * t, x + b * 32 + 4 * t);
  ptx::cp_async_commit();
  __syncthreads();
  while (b + 1 < gridDim.x && flags[b + 1] == 0) __nanosleep(40);
  ptx::cp_async_wait<0>();
  ptx::mbarrier_wait(&full, 0);
  __syncthreads();
  part[b * 32 + t] = first[31 - t] + second[t] + (b + 1 < gridDim.x ? part[(b + 1) * 32 + t] : 0.0f);
  __threadfence();
  __syncthreads();
  if (t == 0) flags[b] = 1;
  y[b * 32 + t] = part[b * 32 + t];
}

// A lock that the threads of a block acquire one after the other.
// launch: 2, 64
extern "C" __global__ void lock_of_lanes(const float* x, float* y, float* part, int* flags) {
  bool done = false;
  while (!done)
    if (atomicCAS(flags, 0, 1) == 0) {
      flags[1]++;
      __threadfence();
      atomicExch(flags, 0);
      done = true;
    }
}

// launch: 1, 64
extern "C" __global__ void waits_for_nobody(const float* x, float* y, float* part, volatile int* flags) {
  if (threadIdx.x == 5)
    while (flags[0] == 0) {  // expect: endless
    }
  y[threadIdx.x] = x[threadIdx.x];
}

// launch: 2, 32
extern "C" __global__ void wait_for_each_other(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x > 0) return;
  while (atomicAdd(&flags[1 - blockIdx.x], 0) == 0) {  // expect: endless
  }
  atomicExch(&flags[blockIdx.x], 1);
}

// launch: 2, 64
extern "C" __global__ void lock_is_never_free(const float* x, float* y, float* part, int* flags) {
  while (atomicCAS(flags, 0, 1) != 0) {  // expect: endless
  }
  flags[1]++;
}

// One ticket too many.
// launch: 3, 32
extern "C" __global__ void barrier_of_too_many(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(flags, 1);
    while (atomicAdd(flags, 0) <= gridDim.x) {  // expect: endless
    }
  }
  __syncthreads();
}

// The lock is tested and set in two steps, so that two threads may take it. That needs a change of threads in between.
// launch: 1, 64
extern "C" __global__ void lock_in_two_steps(const float* x, float* y, float* part, int* flags) {
  __shared__ int lock;
  __shared__ float sum;
  if (threadIdx.x == 0) lock = 0, sum = 0;
  __syncthreads();
  for (int i = 0; i < 1000 && threadIdx.x % 32 == 0; i++) {
    while (atomicAdd(&lock, 0) != 0) {
    }
    atomicExch(&lock, 1);
    sum += x[i];  // expect: race
    __threadfence_block();
    atomicExch(&lock, 0);
  }
  __syncthreads();
  y[threadIdx.x] = sum;
}

// No block waits for another one, and all of them together make more accesses than a block may.
// launch: 32, 32
extern "C" __global__ void much_work(const float* x, float* y, float* part, int* flags) {
  float sum = 0;
  for (int i = 0; i < 10000; i++) sum += x[(i + threadIdx.x) % 1024];
  y[blockIdx.x * 32 + threadIdx.x] = sum;
}
