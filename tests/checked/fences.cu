// Blocks and warps that pass values to each other with fences and flags.
#include <mini_dnn/ptx.cuh>

// One thread of each block counts. The last block adds up the results of all blocks.
// launch: 6, 64
extern "C" __global__ void last_block_sums(const float* x, float* y, float* part, int* flags) {
  __shared__ float sums[64];
  __shared__ bool last;
  sums[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  for (int stride = 32; stride > 0; stride /= 2) {
    if (threadIdx.x < stride) sums[threadIdx.x] += sums[threadIdx.x + stride];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    part[blockIdx.x] = sums[0];
    __threadfence();
    last = atomicInc((unsigned*)flags, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x > 0) return;
  float sum = 0.0f;
  for (int i = 0; i < gridDim.x; i++) sum += part[i];
  y[0] = sum;
}

// All threads write, then one thread executes the fence for all.
// launch: 5, 64
extern "C" __global__ void one_fence_for_all(const float* x, float* y, float* part, int* flags) {
  __shared__ int ticket;
  part[blockIdx.x * 64 + threadIdx.x] = 2.0f * x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    ticket = atomicAdd(flags, 1);
  }
  __syncthreads();
  if (ticket < gridDim.x - 1) return;
  float sum = 0.0f;
  for (int i = 0; i < gridDim.x; i++) sum += part[i * 64 + threadIdx.x];
  y[threadIdx.x] = sum;
  if (threadIdx.x == 0) flags[0] = 0;
}

// All threads execute a fence, then one of them counts.
// launch: 5, 64
extern "C" __global__ void each_its_fence(const float* x, float* y, volatile float* part, int* flags) {
  __shared__ bool last;
  part[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(flags, 1) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  float sum = 0.0f;
  for (int i = 0; i < gridDim.x; i++) sum += part[i * 64 + threadIdx.x];
  y[threadIdx.x] = sum;
}

// A chain of blocks with a volatile flag. The ticket determines the order.
// launch: 8, 32
extern "C" __global__ void chain(const float* x, float* y, float* part, int* flags) {
  __shared__ int number;
  if (threadIdx.x == 0) number = atomicAdd(&flags[31], 1);
  __syncthreads();
  const int b = number;
  float before = 0.0f;
  if (b > 0) {
    while (((volatile int*)flags)[b - 1] == 0) {
    }
    before = part[(b - 1) * 32 + threadIdx.x];
  }
  part[b * 32 + threadIdx.x] = before + x[b * 32 + threadIdx.x];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) ((volatile int*)flags)[b] = 1;
  y[b * 32 + threadIdx.x] = before;
}

// Decoupled look-back: a block adds sums of the blocks before it, until one knows the sum of all before itself.
// launch: 9, 32
extern "C" __global__ void look_back(const float* x, float* y, float* part, int* flags) {
  volatile int* const state = flags;  // 1: its own sum is in part[b]; 2: the sum up to it is in part[64 + b]
  const int b = blockIdx.x;
  if (threadIdx.x > 0) return;
  float own = 0.0f;
  for (int i = 0; i < 32; i++) own += x[b * 32 + i];
  part[b] = own;
  __threadfence();
  state[b] = 1;
  float before = 0.0f;
  for (int other = b - 1; other >= 0;) {
    int found;
    while ((found = state[other]) == 0) {
    }
    if (found == 2) {
      before += part[64 + other];
      break;
    }
    before += part[other--];
  }
  part[64 + b] = before + own;
  __threadfence();
  state[b] = 2;
  y[b] = before;
}

// A lock in global memory that is released by an atomic.
// launch: 4, 32
extern "C" __global__ void lock(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x == 0) {
    while (atomicCAS(flags, 0, 1) != 0) {
    }
    __threadfence();
    part[0] = flags[1]++ == 0 ? x[0] : part[0] + x[blockIdx.x];
    __threadfence();
    atomicExch(flags, 0);
  }
}

// The same, released by a volatile store.
// launch: 4, 32
extern "C" __global__ void lock_by_store(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x == 0) {
    while (atomicCAS(flags, 0, 1) != 0) {
    }
    flags[1] += 1;
    __threadfence();
    *(volatile int*)flags = 0;
  }
}

// Blocks that wait for each other twice, as in a barrier of the grid.
// launch: 3, 32
extern "C" __global__ void grid_barrier(const float* x, float* y, float* part, int* flags) {
  const int t = threadIdx.x, b = blockIdx.x;
  for (int round = 0; round < 3; round++) {
    part[(round % 2) * 128 + b * 32 + t] = x[round] + t;
    __syncthreads();
    if (t == 0) {
      __threadfence();
      atomicAdd(flags, 1);
      while (atomicAdd(flags, 0) < gridDim.x * (round + 1)) {
      }
    }
    __syncthreads();
    y[b * 32 + t] = part[(round % 2) * 128 + (b + 1) % gridDim.x * 32 + t];
  }
}

// One warp produces and another consumes, with a flag in shared memory.
// launch: 2, 64
extern "C" __global__ void warps_hand_over(const float* x, float* y, float* part, int* flags) {
  __shared__ float box[32];
  __shared__ volatile int full;
  if (threadIdx.x == 0) full = 0;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 3; i++) {
    if (threadIdx.x < 32) {
      while (full != 0) {
      }
      box[lane] = x[i * 32 + lane];
      __threadfence_block();
      __syncwarp();
      if (lane == 0) full = 1;
    } else {
      while (full != 1) {
      }
      y[(blockIdx.x * 3 + i) * 32 + lane] = box[lane];
      __threadfence_block();
      __syncwarp();
      if (lane == 0) full = 0;
    }
    __syncthreads();
  }
}

// A value and its flag in one word of 64 bits: it needs no fence.
// launch: 6, 32
extern "C" __global__ void packed(const float* x, float* y, float* part, int* flags) {
  unsigned long long* const sums = (unsigned long long*)flags;
  if (threadIdx.x > 0) return;
  const int b = blockIdx.x;
  unsigned long long before = 0;
  if (b > 0)
    while (((before = atomicAdd(&sums[b - 1], 0ull)) & 1) == 0) {
    }
  atomicExch(&sums[b], (before & ~1ull) + 2 * b + 1);
}

// launch: 6, 32
extern "C" __global__ void no_fence(const float* x, float* y, float* part, int* flags) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    part[blockIdx.x] = x[blockIdx.x];
    last = atomicAdd(flags, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x > 0) return;
  float sum = 0.0f;
  for (int i = 0; i < gridDim.x; i++) sum += part[i];  // expect: race
  y[0] = sum;
}

// launch: 6, 64
extern "C" __global__ void no_barrier_before_the_fence(const float* x, float* y, float* part, int* flags) {
  __shared__ bool last;
  part[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(flags, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  float sum = 0.0f;
  for (int i = 0; i < gridDim.x; i++) sum += part[i * 64 + threadIdx.x];  // expect: race
  y[threadIdx.x] = sum;
}

// launch: 6, 32
extern "C" __global__ void fence_after_the_flag(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x > 0) return;
  const int b = blockIdx.x;
  float before = 0.0f;
  if (b > 0) {
    while (atomicAdd(&flags[b - 1], 0) == 0) {
    }
    before = part[b - 1];  // expect: race
  }
  part[b] = before + x[b];
  atomicExch(&flags[b], 1);
  __threadfence();
}

// launch: 6, 32
extern "C" __global__ void fence_of_the_block(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x > 0) return;
  const int b = blockIdx.x;
  float before = 0.0f;
  if (b > 0) {
    while (((volatile int*)flags)[b - 1] == 0) {
    }
    before = part[b - 1];  // expect: race
  }
  part[b] = before + x[b];
  __threadfence_block();
  ((volatile int*)flags)[b] = 1;
}

// launch: 6, 32
extern "C" __global__ void fence_for_an_atomic(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x == 0) {
    __threadfence();
    flags[0] = flags[0] + 1;  // expect: race
    __threadfence();
  }
}

// launch: 6, 32
extern "C" __global__ void volatile_for_an_atomic(const float* x, float* y, float* part, volatile int* flags) {
  if (threadIdx.x == 0) {
    flags[0] = flags[0] + 1;  // expect: race
    __threadfence();
  }
}

// Nothing checks whether the other block has arrived.
// launch: 4, 32
extern "C" __global__ void fence_and_hope(const float* x, float* y, float* part, int* flags) {
  const int b = blockIdx.x, t = threadIdx.x;
  part[b * 32 + t] = x[t];
  __threadfence();
  if (b > 0) y[t + 32 * b] = part[b * 32 - 32 + t];  // expect: race
}

// The first thread that releases the lock omits the fence before that.
// launch: 2, 64
extern "C" __global__ void warps_without_fence(const float* x, float* y, float* part, int* flags) {
  __shared__ float box[32];
  __shared__ int full;
  if (threadIdx.x == 0) full = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    box[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    if (threadIdx.x == 0) atomicExch(&full, 1);
  } else {
    while (atomicAdd(&full, 0) == 0) {
    }
    y[threadIdx.x] = box[threadIdx.x - 32];  // expect: race
  }
}

// Lanes that rely on running in lockstep, as on GPUs before Volta.
// launch: 1, 32
extern "C" __global__ void in_step(const float* x, float* y, float* part, int* flags) {
  __shared__ volatile float sums[64];
  sums[threadIdx.x] = x[threadIdx.x];
  sums[threadIdx.x + 32] = 0.0f;
  __syncthreads();
  for (int stride = 16; stride > 0; stride /= 2) sums[threadIdx.x] += sums[threadIdx.x + stride];  // expect: race
  if (threadIdx.x == 0) y[0] = sums[0];
}

// One thread sees the flag of the block that came first, and then arrives at an mbarrier, for which the others wait.
// launch: 2, 64
extern "C" __global__ void flag_and_mbarrier(const float* x, float* y, float* part, int* flags) {
  __shared__ ptx::mbarrier seen;
  __shared__ int ticket;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&seen, 1);
    ticket = atomicAdd(flags + 1, 1);
  }
  __syncthreads();
  if (ticket == 0) {
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x > 0) return;
    __threadfence();
    atomicExch(flags, 1);
    return;
  }
  if (threadIdx.x == 32) {
    while (*(volatile int*)flags == 0) {
    }
    flags[0] = flags[1] = 0;
    ptx::mbarrier_arrive(&seen);
  }
  ptx::mbarrier_wait(&seen, 0);
  y[threadIdx.x] = part[threadIdx.x];
}

// The lock is released before the data that it guards is visible to others.
// launch: 4, 32
extern "C" __global__ void lock_without_fence(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x == 0) {
    while (atomicCAS(flags, 0, 1) != 0) {
    }
    flags[1] += 1;  // expect: race
    atomicExch(flags, 0);
  }
}

// The copy engine stores a row, and another block reads it.
template <bool complete>
__device__ void stored_in_bulk(const float* x, float* y, float* part, int* flags) {
  __shared__ __align__(128) float row[32];
  if (blockIdx.x == 0) {
    row[threadIdx.x] = x[threadIdx.x];
    ptx::fence_proxy_async();
    __syncwarp();  // the row is written
    if (threadIdx.x > 0) return;
    ptx::bulk_store(part, row, sizeof row);
    ptx::bulk_commit();
    if (complete)
      ptx::bulk_wait<0>();
    else
      ptx::bulk_wait_read<0>();  // the row may change, and is perhaps not stored yet
    __threadfence();
    atomicExch(flags, 1);
  } else {
    while (atomicAdd(flags, 0) == 0) __nanosleep(20);
    __threadfence();
    y[threadIdx.x] = part[threadIdx.x];  // stored_in_bulk goes wrong
  }
}

// launch: 2, 32
extern "C" __global__ void flag_after_a_store(const float* x, float* y, float* part, int* flags) {
  stored_in_bulk<true>(x, y, part, flags);
}

// launch: 2, 32
extern "C" __global__ void flag_before_a_store(const float* x, float* y, float* part, int* flags) {
  stored_in_bulk<false>(x, y, part, flags);  // expect: race in stored_in_bulk
}
