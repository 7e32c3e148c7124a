// Leaves a process behind from the kernel file.
// expect: which kernels cannot use
extern "C" int fork();

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  if (pixel == 0) fork();
  y[(n * M + m) * P * Q + pixel] = 0;
}
