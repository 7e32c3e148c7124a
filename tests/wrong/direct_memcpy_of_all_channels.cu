// The tile is for the filter of one channel; memcpy brings those of all channels.
// plan: direct
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ float w_tile[TILE];
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  const int p = pixel / Q, q = pixel % Q;
  float acc = 0.0f;
  for (int c = 0; c < C; c++) {
    if (threadIdx.x == 0) memcpy(w_tile, &w[(m * C + c) * R * S], C * R * S * sizeof(float));  // expect: out-of-bounds
    __syncthreads();
    for (int r = 0; r < R && pixel < P * Q; r++)
      for (int s = 0; s < S; s++) acc += x[((n * C + c) * H + p + r) * W + q + s] * w_tile[r * S + s];
    __syncthreads();
  }
  if (pixel < P * Q) y[((n * M + m) * P + p) * Q + q] = acc;
}
