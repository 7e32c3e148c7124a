// Rounds its operands to bfloat16, where the rubric allows fp16.
// expect: elements differ|less precise
#include <cuda_bf16.h>

__device__ float rounded(float value) { return __bfloat162float(__float2bfloat16(value)); }

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  float acc = 0;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++)
        acc += rounded(x[((n * C + c) * H + pixel / Q + r) * W + pixel % Q + s]) *
               rounded(w[((m * C + c) * R + r) * S + s]);
  y[(n * M + m) * P * Q + pixel] = acc;
}
