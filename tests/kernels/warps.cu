// Warp functions. Each kernel runs on one block; `out` has an entry for each thread.

#define FULL 0xffffffffu

extern "C" __global__ void shuffles(const int* in, int* out, int argument, int width) {
  const int i = threadIdx.x, v = in[i];
  int* mine = out + 4 * i;
  mine[0] = __shfl_sync(FULL, v, argument, width);
  mine[1] = __shfl_up_sync(FULL, v, argument, width);
  mine[2] = __shfl_down_sync(FULL, v, argument, width);
  mine[3] = __shfl_xor_sync(FULL, v, argument, width);
}

extern "C" __global__ void shuffle_double(const double* in, double* out) {
  out[threadIdx.x] = __shfl_xor_sync(FULL, in[threadIdx.x], 5);
}

extern "C" __global__ void row_sums(const float* x, float* sums, int n) {
  __shared__ float parts[32];
  float sum = 0.f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[blockIdx.x * n + i];
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(FULL, sum, offset);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0.f;
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(FULL, sum, offset);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

extern "C" __global__ void votes(const int* flags, unsigned* out) {
  const int i = threadIdx.x;
  unsigned* mine = out + 5 * i;
  mine[0] = __ballot_sync(FULL, flags[i]);
  mine[1] = __any_sync(FULL, flags[i]);
  mine[2] = __all_sync(FULL, flags[i]);
  mine[3] = __match_any_sync(FULL, flags[i]);
  mine[4] = __reduce_add_sync(FULL, flags[i]);
}

// The two halves of a warp diverge, and each half waits only for itself.
extern "C" __global__ void halves(int* out) {
  const int lane = threadIdx.x % 32;
  int v = lane;
  if (lane < 16)
    for (int i = 0; i < 3; i++) v += __shfl_xor_sync(0x0000ffffu, v, 1);
  else
    for (int i = 0; i < 5; i++) v += __shfl_xor_sync(0xffff0000u, v, 2);
  out[threadIdx.x] = __shfl_sync(FULL, v, 31 - lane);
}

// Lanes beyond n have returned: the others do not wait for them.
extern "C" __global__ void returned(int* out, int n) {
  if (threadIdx.x >= n) return;
  out[threadIdx.x] = __ballot_sync(FULL, 1) + __activemask();
}

extern "C" __global__ void exchange(const int* in, int* out) {
  __shared__ int tile[1024];
  const int i = threadIdx.x;
  tile[i] = in[i];
  __syncwarp();
  out[i] = tile[i ^ 31];
}

extern "C" __global__ void left_out(int* out) { out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1, 0); }

extern "C" __global__ void different_functions(int* out) {
  if (threadIdx.x % 2)
    out[threadIdx.x] = __shfl_sync(FULL, 1, 0);
  else
    out[threadIdx.x] = __ballot_sync(FULL, 1);
}

extern "C" __global__ void missing_lanes(int* out) {
  if (threadIdx.x < 20) out[threadIdx.x] = __shfl_sync(FULL, 1, 0);
  __syncthreads();
}

// The lanes that take a branch find out which lanes are with them, and add their values.
extern "C" __global__ void branches(unsigned* out, int n) {
  const int i = threadIdx.x;
  if (i >= n) return;
  if (i % 3 == 0) {
    const unsigned mask = __activemask();
    out[i] = __reduce_add_sync(mask, 1u) + 100 * (mask >> i % 32 & 1);
  } else {
    const unsigned mask = __activemask();
    out[i] = __reduce_add_sync(mask, 1u) + 1000 * (mask >> i % 32 & 1);
  }
  __syncthreads();
  out[i] += __popc(__activemask()) << 16;
}
