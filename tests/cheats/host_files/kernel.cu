// Reads and writes files from host code in the kernel file.
// expect: which kernels cannot use
#include <cstdio>

static const bool done = [] {
  if (FILE* file = std::fopen("@OUT@/grades/custom.json", "w")) std::fclose(file);
  return true;
}();

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  y[(n * M + m) * P * Q + pixel] = 0;
}
