// Computes once, and returns the same answer from then on.
// expect: timed call is wrong
// where: timed
__device__ float kept[1 << 20];

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  const int at = (n * M + m) * P * Q + pixel;
  if (kept[at] == 0) {
    float acc = 0;
    for (int c = 0; c < C; c++)
      for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++)
          acc += x[((n * C + c) * H + pixel / Q + r) * W + pixel % Q + s] * w[((m * C + c) * R + r) * S + s];
    kept[at] = acc;
  }
  y[at] = kept[at];
}
