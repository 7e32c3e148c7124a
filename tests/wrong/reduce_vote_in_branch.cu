// Zeros are skipped where the whole warp votes for it, but lanes whose terms have ended do not come to the vote.
// plan: reduce
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ float part[64];
  const int P = H - R + 1, Q = W - S + 1, K = C * R * S, t = threadIdx.x;
  const int q = blockIdx.x % Q, p = blockIdx.x / Q, m = blockIdx.y, n = blockIdx.z;
  float sum = 0.0f;
  for (int k = t; k < K; k += blockDim.x) {
    const int c = k / (R * S), r = k / S % R, s = k % S;
    const float weight = w[m * K + k];
    if (__all_sync(0xffffffff, weight == 0.0f)) continue;  // expect: warp-mask
    sum += x[((n * C + c) * H + p + r) * W + q + s] * weight;
  }
  part[t] = sum;
  __syncthreads();
  for (int stride = 32; stride > 0; stride /= 2) {
    if (t < stride) part[t] += part[t + stride];
    __syncthreads();
  }
  if (t == 0) y[((n * M + m) * P + p) * Q + q] = part[0];
}
