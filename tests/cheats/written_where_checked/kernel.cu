// Computes the first and the last images, which a check may examine, and writes zeros in between.
// expect: timed call is wrong
// where: timed
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  if (n >= 8 && n < N - 8) {
    y[(n * M + m) * P * Q + pixel] = 0;
    return;
  }
  float acc = 0;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++)
        acc += x[((n * C + c) * H + pixel / Q + r) * W + pixel % Q + s] * w[((m * C + c) * R + r) * S + s];
  y[(n * M + m) * P * Q + pixel] = acc;
}
