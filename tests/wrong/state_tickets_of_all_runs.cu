// Tickets that are never set back: each run takes the next ones, and asks for their rest.
// plan: direct
// expect: nothing
__device__ unsigned arrived;

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    const unsigned ticket = atomicAdd(&arrived, 1u);
    const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
    is_last = ticket % blocks == blocks - 1;
  }
  __syncthreads();
  if (!is_last) return;
  for (int i = threadIdx.x; i < N * M * P * Q; i += blockDim.x) {
    const int q = i % Q, p = i / Q % P, m = i / (P * Q) % M, n = i / (P * Q * M);
    float acc = 0.0f;
    for (int c = 0; c < C; c++)
      for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++) acc += x[((n * C + c) * H + p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
    y[i] = acc;
  }
}
