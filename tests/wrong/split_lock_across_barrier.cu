// A lock around the sum over the channels: its holder comes to a barrier, which the others can never reach.
// plan: split
extern "C" __global__ void conv(const float* x, const float* w, float* part, float* y, int N, int C, int H, int W,
                                int M, int R, int S) {
  __shared__ int lock;
  const int P = H - R + 1, Q = W - S + 1, size = N * M * P * Q;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) lock = 0;
  __syncthreads();
  if (blockIdx.y > 0) return;
  const int q = i % Q, p = i / Q % P, m = i / (P * Q) % M, n = i / (P * Q * M);
  while (atomicCAS(&lock, 0, 1) != 0) {  // expect: endless
  }
  float acc = 0.0f;
  for (int c = 0; c < C && i < size; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) acc += x[((n * C + c) * H + p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
  __syncthreads();
  atomicExch(&lock, 0);
  if (i < size) y[i] = acc;
}
