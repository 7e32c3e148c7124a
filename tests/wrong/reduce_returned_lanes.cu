// Lanes without a term return early; the others still add up what those would have had.
// plan: reduce
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1, K = C * R * S, t = threadIdx.x;
  const int q = blockIdx.x % Q, p = blockIdx.x / Q, m = blockIdx.y, n = blockIdx.z;
  if (t >= 32 || t >= K / 2) return;
  float sum = 0.0f;
  for (int k = t; k < K; k += min(32, K / 2)) {
    const int c = k / (R * S), r = k / S % R, s = k % S;
    sum += x[((n * C + c) * H + p + r) * W + q + s] * w[m * K + k];
  }
  for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);  // expect: warp-mask
  if (t == 0) y[((n * M + m) * P + p) * Q + q] = sum;
}
