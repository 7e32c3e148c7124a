// The launch is early, and does not wait for that of the previous run, which writes the same results.
// plan: direct_early
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  const int p = pixel / Q, q = pixel % Q;
  float acc = 0.0f;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) acc += x[((n * C + c) * H + p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
  y[((n * M + m) * P + p) * Q + q] = acc;  // expect: race
}
