// Q as a power of two, to shift instead of dividing: for a Q that is none, the loop that looks for it never ends.
// plan: direct
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  int log2_q = 0;
  while (1u << log2_q != Q) log2_q = (log2_q + 1) % 32;  // expect: endless
  if (pixel >= P * Q) return;
  const int p = pixel >> log2_q, q = pixel - (p << log2_q);
  float acc = 0.0f;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) acc += x[((n * C + c) * H + p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
  y[((n * M + m) * P + p) * Q + q] = acc;
}
