// What a wait for an mbarrier orders: what threads did before they arrived, for the threads that wait.
#include <mini_dnn/ptx.cuh>
#include <mini_dnn/ptx_widths.cuh>

// Two warps of a block, each in its turn, share a value. Each arrives when it has used it.
// launch: 1, 64
extern "C" __global__ void in_turn(const float* x, float* y, float* part, int* flags) {
  __shared__ ptx::mbarrier turn[2];
  __shared__ float value;
  const int warp = threadIdx.x / 32;
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; i++) ptx::mbarrier_init(turn + i, 1);
  if (threadIdx.x == 0) value = 0;
  __syncthreads();  // the mbarriers and the value are there
  for (int i = 0; i < 4; i++) {
    ptx::mbarrier_wait(turn + warp, (i + 1 + warp) % 2);
    if (threadIdx.x % 32 == 5) value += x[i];
    __syncwarp();  // the value is written
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(turn + (warp ^ 1));
  }
  if (threadIdx.x < 32) ptx::mbarrier_wait(turn, 1);  // the last turn of the other warp
  if (threadIdx.x < 32) y[threadIdx.x] = value;
}

// Without the barrier of the warp, another lane may arrive before the value is written.
// launch: 1, 64
extern "C" __global__ void another_lane_arrives(const float* x, float* y, float* part, int* flags) {
  __shared__ ptx::mbarrier written;
  __shared__ float value;
  if (threadIdx.x == 0) ptx::mbarrier_init(&written, 1);
  __syncthreads();                     // the mbarrier is there
  if (threadIdx.x == 5) value = x[0];  // expect: race
  if (threadIdx.x == 6) ptx::mbarrier_arrive(&written);
  if (threadIdx.x < 32) return;
  ptx::mbarrier_wait(&written, 0);
  y[threadIdx.x] = value;
}

// The value changes after the arrival, while the phase still needs another one.
// launch: 1, 96
extern "C" __global__ void writes_after_the_arrival(const float* x, float* y, float* part, int* flags) {
  __shared__ ptx::mbarrier written;
  __shared__ float value;
  if (threadIdx.x == 0) ptx::mbarrier_init(&written, 2);
  __syncthreads();  // the mbarrier is there
  if (threadIdx.x == 0) {
    value = x[0];
    ptx::mbarrier_arrive(&written);
    value = x[1];  // expect: race
  }
  if (threadIdx.x == 32) ptx::mbarrier_arrive(&written);
  if (threadIdx.x < 64) return;
  ptx::mbarrier_wait(&written, 0);
  y[threadIdx.x] = value;
}

// One warp waits for the value, and the other one does not.
// launch: 1, 96
extern "C" __global__ void one_warp_does_not_wait(const float* x, float* y, float* part, int* flags) {
  __shared__ ptx::mbarrier written, read;
  __shared__ float value;
  if (threadIdx.x == 0) ptx::mbarrier_init(&written, 1), ptx::mbarrier_init(&read, 1);
  __syncthreads();  // the mbarriers are there
  if (threadIdx.x == 0) {
    value = x[0];
    ptx::mbarrier_arrive(&written);
  }
  if (threadIdx.x / 32 == 1) ptx::mbarrier_wait(&written, 0);
  if (threadIdx.x >= 32) y[threadIdx.x] = value;  // expect: race
}

// Data of a copy are there for threads that wait for it.
// launch: 1, 96
extern "C" __global__ void one_warp_does_not_wait_for_a_copy(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(128) float tile[32];
  __shared__ ptx::mbarrier full;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive_expect_tx(&full, sizeof tile);
    ptx::bulk_load(tile, x, sizeof tile, &full);
  }
  __syncthreads();  // the mbarrier is there
  if (threadIdx.x / 32 == 1) ptx::mbarrier_wait(&full, 0);
  if (threadIdx.x >= 32) y[threadIdx.x] = tile[threadIdx.x % 32];  // expect: async
}

// One lane waits for a copy, and its warp meets.
// launch: 1, 64
extern "C" __global__ void a_lane_waits_for_its_warp(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(128) float tile[32];
  __shared__ ptx::mbarrier full;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive_expect_tx(&full, sizeof tile);
    ptx::bulk_load(tile, x, sizeof tile, &full);
  }
  __syncthreads();  // the mbarrier is there
  if (threadIdx.x % 32 == 3) ptx::mbarrier_wait(&full, 0);
  __syncwarp();  // a lane has waited
  y[threadIdx.x] = tile[threadIdx.x % 32];
}

// What a thread learns at one mbarrier, it passes on at the next.
// launch: 1, 96
extern "C" __global__ void chain_of_mbarriers(const float* x, float* y, float* part, int* flags) {
  __shared__ ptx::mbarrier first, second;
  __shared__ float value;
  if (threadIdx.x == 0) ptx::mbarrier_init(&first, 1), ptx::mbarrier_init(&second, 1);
  __syncthreads();  // the mbarriers are there
  if (threadIdx.x == 0) {
    value = x[0];
    ptx::mbarrier_arrive(&first);
  }
  if (threadIdx.x == 32) {
    ptx::mbarrier_wait(&first, 0);
    ptx::mbarrier_arrive(&second);
  }
  if (threadIdx.x < 64) return;
  ptx::mbarrier_wait(&second, 0);
  y[threadIdx.x] = value;
}

// What a thread learns at an mbarrier, it passes on to another block by a fence and a flag.
// launch: 2, 64
extern "C" __global__ void mbarrier_and_flag(const float* x, float* y, float* part, int* flags) {
  __shared__ ptx::mbarrier written;
  __shared__ int ticket;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&written, 1);
    ticket = atomicAdd(flags + 1, 1);
  }
  __syncthreads();  // the mbarrier and the ticket are there
  if (ticket == 0 && threadIdx.x == 0) {
    part[0] = x[0];
    ptx::mbarrier_arrive(&written);
  } else if (ticket == 0 && threadIdx.x == 32) {
    ptx::mbarrier_wait(&written, 0);
    __threadfence();
    atomicExch(flags, 1);
  } else if (ticket == 1 && threadIdx.x == 0) {
    while (atomicAdd(flags, 0) == 0) {
    }
    y[0] = part[0];
  }
}

// One thread has seen the flag of the block that came first. The others wait for an mbarrier at which it does not
// arrive.
// launch: 2, 96
extern "C" __global__ void flag_and_another_mbarrier(const float* x, float* y, float* part, int* flags) {
  __shared__ ptx::mbarrier other;
  __shared__ int ticket;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&other, 1);
    ticket = atomicAdd(flags + 1, 1);
  }
  __syncthreads();  // the mbarrier and the ticket are there
  if (ticket == 0) {
    if (threadIdx.x > 0) return;
    part[0] = x[0];
    __threadfence();
    atomicExch(flags, 1);
    return;
  }
  if (threadIdx.x == 0) {
    while (atomicAdd(flags, 0) == 0) {
    }
    y[0] = part[0];
  }
  if (threadIdx.x == 32) ptx::mbarrier_arrive(&other);
  if (threadIdx.x < 64) return;
  ptx::mbarrier_wait(&other, 0);
  y[threadIdx.x] = part[0];  // expect: race
}

// A buffer is given back before it is read.
// launch: 1, 64
extern "C" __global__ void gives_back_too_early(const float* x, float* y, float* part, int* flags) {
  __shared__ ptx::mbarrier full, empty;
  __shared__ float value;
  if (threadIdx.x == 0) ptx::mbarrier_init(&full, 1), ptx::mbarrier_init(&empty, 1);
  __syncthreads();  // the mbarriers are there
  for (int i = 0; i < 3; i++) {
    if (threadIdx.x == 0) {
      if (i > 0) ptx::mbarrier_wait(&empty, (i - 1) % 2);
      value = x[i];
      ptx::mbarrier_arrive(&full);
    }
    if (threadIdx.x == 32) {
      ptx::mbarrier_wait(&full, i % 2);
      if (i < 2) ptx::mbarrier_arrive(&empty);
      y[i] = value;  // expect: race
    }
  }
}

// A product orders what it reads. What another lane wrote needs a barrier of the warp, as without a product.
// launch: 1, 256
extern "C" __global__ void a_product_is_no_barrier(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(1024) unsigned memory[4096];
  __shared__ ptx::mbarrier done;
  __shared__ float value;
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) memory[i] = 0;
  ptx::fence_proxy_async();
  if (threadIdx.x == 0) ptx::mbarrier_init(&done, 4);
  __syncthreads();  // the operands and the mbarrier are there
  if (threadIdx.x < 128) {
    if (threadIdx.x == 5) value = x[0];  // expect: race
    float sums[8][4] = {};
    const auto a = ptx::matrix_descriptor_128b(memory, 0, 1024), b = ptx::matrix_descriptor_128b(memory, 0, 1024);
    ptx::wgmma_fence();
    ptx::wgmma_m64k16<64, ptx::Half, false, false>(sums, a, b, false);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(sums);
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&done);
    if (sums[0][0] != 0) y[0] = 1;
  } else {
    ptx::mbarrier_wait(&done, 0);
    y[threadIdx.x] = value;
  }
}

// One thread gives a stage back for its warpgroup. What other warps read after they started the product is not ordered.
// launch: 1, 160
extern "C" __global__ void others_read_after_the_product(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(128) float stage[192];
  __shared__ ptx::mbarrier full, empty;
  if (threadIdx.x == 0) ptx::mbarrier_init(&full, 32), ptx::mbarrier_init(&empty, 1);
  __syncthreads();  // the mbarriers are there
  float sums[3][4] = {};
  const unsigned a[4] = {};
  for (int i = 0; i < 3; i++) {
    if (threadIdx.x >= 128) {
      if (i > 0) ptx::mbarrier_wait(&empty, (i - 1) % 2);
      for (int j = threadIdx.x % 32; j < 192; j += 32) stage[j] = x[j];
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(&full);
      continue;
    }
    ptx::mbarrier_wait(&full, i % 2);
    const float before = stage[threadIdx.x];
    ptx::wgmma_fence();
    ptx::wgmma_m64k16<24, true>(sums, a, ptx::matrix_descriptor(stage, 128, 256));
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(sums);
    y[threadIdx.x] = before + stage[threadIdx.x + 64];  // expect: race
    if (threadIdx.x == 0) ptx::mbarrier_arrive(&empty);
  }
}

// Each block waits for the next one and is suspended meanwhile, but does not wait for its copy.
// launch: 3, 32
extern "C" __global__ void forgotten_copy(const float* x, float* y, float* part, volatile int* flags) {
  const int b = blockIdx.x, t = threadIdx.x;
  __shared__ alignas(16) float tile[32];
  if (t < 8) ptx::cp_async<16>(tile + 4 * t, x + b * 32 + 4 * t);
  ptx::cp_async_commit();
  while (b + 1 < gridDim.x && flags[b + 1] == 0) __nanosleep(40);
  if (b + 1 == gridDim.x) ptx::cp_async_wait<0>();
  __syncthreads();
  y[b * 32 + t] = tile[t];  // expect: async
  __threadfence();
  __syncthreads();
  if (t == 0) flags[b] = 1;
}

// launch: 1, 32
extern "C" __global__ void no_barrier_after_init(const float* x, float* y, float* part, int* flags) {
  __shared__ ptx::mbarrier all;
  if (threadIdx.x == 0) ptx::mbarrier_init(&all, 32);
  ptx::mbarrier_arrive(&all);  // expect: fault
  ptx::mbarrier_wait(&all, 0);
}
