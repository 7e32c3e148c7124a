// Reads through the read-only cache.

// launch: 2, 64
extern "C" __global__ void of_inputs(const float* x, float* y, float* part, int* flags) {
  y[blockIdx.x * 64 + threadIdx.x] = __ldg(&x[threadIdx.x]) + __ldg(x);
}

// launch: 2, 64
extern "C" __global__ void before_the_write(const float* x, float* y, float* part, int* flags) {
  const int i = 1 + blockIdx.x * 64 + threadIdx.x;
  if (blockIdx.x == 0 && i < 64) flags[i] = __ldg(&flags[i]) + 1;
}

// launch: 1, 64
extern "C" __global__ void vectors(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x < 16) ((float4*)y)[threadIdx.x] = __ldg((const float4*)x + threadIdx.x);
  __syncthreads();
  part[threadIdx.x] = y[63 - threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void of_what_a_neighbour_wrote(const float* x, float* y, float* part, int* flags) {
  part[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = __ldg(&part[63 - threadIdx.x]);  // expect: race
}

// launch: 1, 64
extern "C" __global__ void of_what_it_wrote_itself(const float* x, float* y, float* part, int* flags) {
  part[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = 2.0f * __ldg(&part[threadIdx.x]);  // expect: race
}

// launch: 4, 32
extern "C" __global__ void of_sums_of_blocks(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x > 0) return;
  part[blockIdx.x] = x[blockIdx.x];
  __threadfence();
  if (atomicAdd(flags, 1) < gridDim.x - 1) return;
  float sum = 0.0f;
  for (int i = 0; i < gridDim.x; i++) sum += __ldg(&part[i]);  // expect: race
  y[0] = sum;
}

// launch: 1, 64
extern "C" __global__ void in_a_loop(const float* x, float* y, float* part, int* flags) {
  part[threadIdx.x] = x[threadIdx.x];
  for (int stride = 32; stride > 0; stride /= 2) {
    __syncthreads();
    if (threadIdx.x < stride) part[threadIdx.x] += __ldg(part + threadIdx.x + stride);  // expect: race
  }
}
