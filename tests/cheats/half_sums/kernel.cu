// Keeps sums in half precision, where the rubric allows this only for operands.
// expect: elements differ|less exact
#include <cuda_fp16.h>

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  half acc = 0;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++)
        acc += __float2half(x[((n * C + c) * H + pixel / Q + r) * W + pixel % Q + s]) *
               __float2half(w[((m * C + c) * R + r) * S + s]);
  y[(n * M + m) * P * Q + pixel] = __half2float(acc);
}
