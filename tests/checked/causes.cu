// Mistakes that first appear as something else, and races that do no harm.

// launch: 1, 64
extern "C" __global__ void barrier_in_a_strided_loop(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[64];
  float sum = 0.0f;
  for (int i = threadIdx.x; i < 96; i += 64) {
    tile[threadIdx.x] = x[i];
    __syncthreads();  // expect: divergence
    sum += tile[63 - threadIdx.x];
  }
  __syncthreads();
  tile[threadIdx.x] = sum;
  y[threadIdx.x] = tile[threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void barrier_in_each_branch(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[64];
  if (threadIdx.x < 32) {
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();  // expect: divergence
  } else {
    y[threadIdx.x] = tile[threadIdx.x - 32];
    __syncthreads();
  }
}

// launch: 1, 32
extern "C" __global__ void two_masks(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[32];
  tile[threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x < 16)
    __syncwarp(0x0000ffff);
  else
    __syncwarp(0xffffffff);  // expect: warp-mask
  y[threadIdx.x] = tile[31 - threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void some_leave_early(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[64];
  for (int i = 0; i < 2; i++) {
    tile[threadIdx.x] = x[i * 64 + threadIdx.x];
    if (i == 1 && threadIdx.x >= 32) break;
    __syncthreads();  // expect: divergence
    y[threadIdx.x] = tile[63 - threadIdx.x];
    __syncthreads();
  }
  __syncthreads();
}

// launch: 1, 64
extern "C" __global__ void all_say_yes(const float* x, float* y, float* part, int* flags) {
  __shared__ int found;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  if (x[threadIdx.x] > 20.0f) found = 1;  // expect: race
  __syncthreads();
  y[threadIdx.x] = found;
}

// launch: 3, 32
extern "C" __global__ void blocks_say_yes(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x == 0) flags[3] = 7;  // expect: race
}

// launch: 1, 64
extern "C" __global__ void all_count(const float* x, float* y, float* part, int* flags) {
  __shared__ int last;
  last = threadIdx.x;  // expect: race
  __syncthreads();
  y[threadIdx.x] = last;
}

// Two barriers that all threads reach on either path.
// launch: 1, 64
extern "C" __global__ void loop_of_equal_length(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[64];
  for (int first = 0; first < 96; first += 64) {
    const int i = first + threadIdx.x;
    tile[threadIdx.x] = i < 96 ? x[i] : 0.0f;
    __syncthreads();
    if (i < 96) y[i] = tile[63 - threadIdx.x];
    __syncthreads();
  }
}

// launch: 1, 32
extern "C" __global__ void halves_of_a_warp(const float* x, float* y, float* part, int* flags) {
  __shared__ float tile[32];
  tile[threadIdx.x] = x[threadIdx.x];
  const unsigned mask = threadIdx.x < 16 ? 0x0000ffff : 0xffff0000;
  __syncwarp(mask);
  y[threadIdx.x] = tile[threadIdx.x ^ 15];
}

// launch: 1, 64
extern "C" __global__ void one_says_yes(const float* x, float* y, float* part, int* flags) {
  __shared__ int found;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  if (x[threadIdx.x] > 20.0f) atomicOr(&found, 1);
  __syncthreads();
  y[threadIdx.x] = found;
}
