// The first block hands a value to all others, and nobody takes its flag back: in the next run they do not wait.
// plan: direct
// clean in order: forward
__device__ float handed;
__device__ int ready;

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ float factor;
  if (threadIdx.x == 0) {
    if (blockIdx.x + blockIdx.y + blockIdx.z == 0) {
      handed = 1.0f + 0.0f * x[0];  // expect: race
      __threadfence();
      atomicExch(&ready, 1);
    }
    while (atomicAdd(&ready, 0) == 0) __nanosleep(10);
    __threadfence();
    factor = handed;
  }
  __syncthreads();
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  const int p = pixel / Q, q = pixel % Q;
  float acc = 0.0f;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) acc += x[((n * C + c) * H + p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
  y[((n * M + m) * P + p) * Q + q] = factor * acc;
}
