// Only whole tiles of the reduction: the last, partial one is left out.
// plan: gemm
// expect: wrong
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ float w_tile[TILE][TILE], x_tile[TILE][TILE];
  const int P = H - R + 1, Q = W - S + 1, K = C * R * S, cols = N * P * Q;
  const int tx = threadIdx.x, ty = threadIdx.y, m = blockIdx.y * TILE + ty, j = blockIdx.x * TILE + tx;
  const int n = j / (P * Q), p = j / Q % P, q = j % Q;
  float acc = 0.0f;
  for (int k0 = 0; k0 + TILE <= K; k0 += TILE) {
    const int k = k0 + ty, c = k / (R * S), r = k / S % R, s = k % S;
    w_tile[ty][tx] = m < M && k0 + tx < K ? w[m * K + k0 + tx] : 0.0f;
    x_tile[ty][tx] = j < cols && k < K ? x[((n * C + c) * H + p + r) * W + q + s] : 0.0f;
    __syncthreads();
    for (int i = 0; i < TILE; i++) acc += w_tile[ty][i] * x_tile[i][tx];
    __syncthreads();
  }
  if (m < M && j < cols) y[((n * M + m) * P + p) * Q + q] = acc;
}
