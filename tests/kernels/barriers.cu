// Barriers of the block: correct ones, and ones that hang on a GPU.

extern "C" __global__ void reverse(const int* in, int* out) {
  __shared__ int tile[1024];
  const int i = threadIdx.x, n = blockDim.x;
  tile[i] = in[blockIdx.x * n + i];
  __syncthreads();
  out[blockIdx.x * n + i] = tile[n - 1 - i];
}

// Each round reads what another thread wrote in the round before: 64 barriers in a row.
extern "C" __global__ void rotate(int* values) {
  __shared__ int tile[2][256];
  const int i = threadIdx.x, n = blockDim.x;
  tile[0][i] = values[i];
  for (int round = 0; round < 64; round++) {
    __syncthreads();
    tile[(round + 1) % 2][i] = tile[round % 2][(i + 1) % n] + 1;
  }
  values[i] = tile[0][i];
}

extern "C" __global__ void votes(const int* flags, int* count, int* all, int* any) {
  const int i = threadIdx.x;
  count[i] = __syncthreads_count(flags[i]);
  all[i] = __syncthreads_and(flags[i]);
  any[i] = __syncthreads_or(flags[i]);
}

// Threads that have returned count as arrived, as on sm_70 and later.
extern "C" __global__ void early_exit(int* out, int stay) {
  __shared__ int total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  if (threadIdx.x >= stay) return;
  atomicAdd(&total, 1);
  __syncthreads();
  out[threadIdx.x] = total;
}

extern "C" __global__ void divergent(int* out) {
  if (threadIdx.x < 5) {
    __syncthreads();  // few
    out[threadIdx.x] = 1;
  } else {
    __syncthreads();  // many
  }
}

extern "C" __global__ void same_line(int* out) {
  if (threadIdx.x % 2) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

extern "C" __global__ void block_and_warp(int* out) {
  if (threadIdx.x < 32 && threadIdx.x != 3)
    __syncwarp();
  else
    __syncthreads();
}

extern "C" __global__ void thread_index(int* out) {
  const int i = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  __syncthreads();
  int* mine = out + (block * blockDim.x * blockDim.y * blockDim.z + i) * 6;
  mine[0] = threadIdx.x, mine[1] = threadIdx.y, mine[2] = threadIdx.z;
  mine[3] = blockIdx.x, mine[4] = blockIdx.y, mine[5] = blockIdx.z;
}

extern "C" __global__ void count_blocks(unsigned* counter) {
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(counter, 1u);
}

// Thread 0 waits for a value that the last thread writes.
extern "C" __global__ void poll(volatile int* flag, int* out) {
  if (threadIdx.x == blockDim.x - 1) *flag = 7;
  if (threadIdx.x == 0) {
    while (*flag != 7) __nanosleep(20);
    *out = *flag;
  }
}

// Each block waits for the next one. The last one may access an invalid address instead of going on.
extern "C" __global__ void last_to_first(int* flags, int* out, int fault) {
  if (threadIdx.x == 0 && blockIdx.x + 1 < gridDim.x)
    while (atomicAdd(flags + blockIdx.x + 1, 0) == 0) __nanosleep(20);
  __syncthreads();  // the next block has been here
  if (fault && blockIdx.x + 1 == gridDim.x) *(volatile int*)nullptr = 0;
  if (threadIdx.x > 0) return;
  out[blockIdx.x] = 1;
  __threadfence();
  atomicExch(flags + blockIdx.x, 1);
}
