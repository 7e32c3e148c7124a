// Makes the assembler include the rubric in the program.
// expect: compile|Permission denied
asm(".globl secret\nsecret: .incbin \"@RUBRIC@\"");

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  extern const char secret[];
  y[(n * M + m) * P * Q + pixel] = secret[pixel % 64];
}
