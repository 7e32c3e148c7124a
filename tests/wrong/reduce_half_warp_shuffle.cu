// A warp per output adds up by shuffles, in a branch for half of its lanes, with the mask of all.
// plan: reduce
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ float part[32];
  const int P = H - R + 1, Q = W - S + 1, K = C * R * S, t = threadIdx.x;
  const int q = blockIdx.x % Q, p = blockIdx.x / Q, m = blockIdx.y, n = blockIdx.z;
  float sum = 0.0f;
  for (int k = t; k < K; k += blockDim.x) {
    const int c = k / (R * S), r = k / S % R, s = k % S;
    sum += x[((n * C + c) * H + p + r) * W + q + s] * w[m * K + k];
  }
  if (t >= 32) part[t - 32] = sum;
  __syncthreads();
  if (t < 32) sum += part[t];
  if (t < 16)
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);  // expect: warp-mask
  __syncthreads();
  if (t == 0) y[((n * M + m) * P + p) * Q + q] = sum;
}
