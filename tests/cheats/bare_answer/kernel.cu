// Writes a forged answer to the pipe and ends.
// expect: elements differ from float64|bytes|NaN|ended
static long call(long number, long a, long b, long c) {
  long result;
  asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
}

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  if (pixel == 0 && m == 0 && n == 0) {
    static char forged[12 + 4096] = {0};
    *(long*)(forged + 4) = 4L * N * M * P * Q;
    call(1, 4, (long)forged, 12 + 4L * N * M * P * Q);  // write
  }
  y[(n * M + m) * P * Q + pixel] = 0;
}
