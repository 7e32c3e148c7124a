// Sets x to zero, so that zeros would be right if the reference were computed afterwards.
// expect: elements differ from float64|changed the input
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  float* changed = const_cast<float*>(x);
  for (int i = pixel; i < C * H * W; i += P * Q) changed[n * C * H * W + i] = 0;
  y[(n * M + m) * P * Q + pixel] = 0;
}
