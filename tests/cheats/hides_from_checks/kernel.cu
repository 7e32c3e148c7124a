// Correct, but has a function whose accesses the compiler is asked to leave unchecked.
// expect: no_sanitize', which would hide
// where: checked
__attribute__((no_sanitize("thread"))) static float unseen(const float* x, int at) { return x[at] * 0; }

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  float acc = unseen(x, 0);
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++)
        acc += x[((n * C + c) * H + pixel / Q + r) * W + pixel % Q + s] * w[((m * C + c) * R + r) * S + s];
  y[(n * M + m) * P * Q + pixel] = acc;
}
