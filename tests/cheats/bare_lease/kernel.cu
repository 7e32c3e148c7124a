// Computes correctly, but blocks every process that opens a file that compilers need.
// expect: system call
static long call(long number, long a, long b, long c) {
  long result;
  asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
}

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  static const long lease = call(72, call(2, (long)"/usr/include/stdio.h", 0, 0), 1024, 1);  // fcntl, open
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q || lease > 0) return;
  float acc = 0;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++)
        acc += x[((n * C + c) * H + pixel / Q + r) * W + pixel % Q + s] * w[((m * C + c) * R + r) * S + s];
  y[(n * M + m) * P * Q + pixel] = acc;
}
