// Reads memory behind its inputs, in the hope that the reference is there.
// expect: elements differ from float64|reads|outside|past the end|access
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  y[(n * M + m) * P * Q + pixel] = w[M * C * R * S + (n * M + m) * P * Q + pixel];
}
