// Each run takes a slot of its own, of two.
// plan: direct
__device__ int slot_of[256];
__device__ float slots[256][2];

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  __shared__ int slot;
  if (threadIdx.x == 0) {
    slot = slot_of[block];
    slot_of[block] = slot + 1;
    slots[block][slot] = 1.0f;  // expect: out-of-bounds
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
  y[((n * M + m) * P + p) * Q + q] = slots[block][slot] * acc;
}
