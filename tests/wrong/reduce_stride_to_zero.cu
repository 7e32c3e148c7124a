// A block per output: the parts are summed up in halves, and ">= 0" never ends, as 0 / 2 is 0.
// plan: reduce
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ float part[64];
  const int P = H - R + 1, Q = W - S + 1, K = C * R * S, t = threadIdx.x;
  const int q = blockIdx.x % Q, p = blockIdx.x / Q, m = blockIdx.y, n = blockIdx.z;
  part[t] = 0.0f;
  for (int k = t; k < K; k += blockDim.x) {
    const int c = k / (R * S), r = k / S % R, s = k % S;
    part[t] += x[((n * C + c) * H + p + r) * W + q + s] * w[m * K + k];
  }
  __syncthreads();
  for (int stride = blockDim.x / 2; stride >= 0; stride /= 2) {
    if (t < stride) part[t] += part[t + stride];
    __syncthreads();  // expect: endless
  }
  if (t == 0) y[((n * M + m) * P + p) * Q + q] = part[0];
}
