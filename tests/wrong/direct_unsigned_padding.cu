// Row and column of a padded image in unsigned: one less than 0 is 4,294,967,295, and passes the test "< H".
// plan: direct
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  const int p = pixel / Q, q = pixel % Q;
  float acc = 0.0f;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) {
        const unsigned row = p + r - 1;  // a padding of one, which this convolution does not have
        if (int(row) >= H) continue;
        acc += x[((n * C + c) * H + row) * W + q + s] *  // expect: out-of-bounds
               w[((m * C + c) * R + r) * S + s];
      }
  y[((n * M + m) * P + p) * Q + q] = acc;
}
