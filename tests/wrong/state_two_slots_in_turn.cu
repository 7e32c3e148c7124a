// Each run takes the slot that the run before did not, and fills it first.
// plan: direct
// expect: nothing
__device__ int turn[8192];
__device__ float slots[2][8192];

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  const int p = pixel / Q, q = pixel % Q;
  const int i = ((n * M + m) * P + p) * Q + q, slot = turn[i] % 2;
  float acc = 0.0f;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) acc += x[((n * C + c) * H + p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
  slots[slot][i] = acc;
  turn[i]++;
  y[i] = slots[slot][i];
}
