// Writes zeros, which is less work than a convolution. The cheats try to get credit for it.
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  if (pixel < P * Q) y[((long long)blockIdx.z * M + blockIdx.y) * P * Q + pixel] = 0;
}
