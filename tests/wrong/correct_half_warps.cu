// Right: lanes 8 to 15 read lanes that the mask does not name, and their sums are dropped.
// plan: reduce
// expect: nothing
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int p = blockIdx.x / Q, q = blockIdx.x % Q, m = blockIdx.y, n = blockIdx.z, t = threadIdx.x;
  if (t >= 16) return;
  float acc = 0.0f;
  for (int i = t; i < C * R * S; i += 16)
    acc += x[((n * C + i / (R * S)) * H + p + i / S % R) * W + q + i % S] * w[m * C * R * S + i];
  for (int d = 8; d; d /= 2) acc += __shfl_down_sync(0x0000ffff, acc, d);
  if (t == 0) y[((n * M + m) * P + p) * Q + q] = acc;
}
