// Counts its calls in memory behind the output, which is not overwritten, and computes only in the first calls.
// expect: a kernel wrote 256 bytes after the buffer 'y'|252 bytes past the end of 'y'
// where: timed
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  int* calls = (int*)(y + (long long)N * M * P * Q) + 63;
  if (pixel >= P * Q) return;
  float acc = 0;
  for (int c = 0; c < C && (unsigned)*calls != 0x12345678u; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++)
        acc += x[((n * C + c) * H + pixel / Q + r) * W + pixel % Q + s] * w[((m * C + c) * R + r) * S + s];
  y[(n * M + m) * P * Q + pixel] = acc;
  if (pixel + m + n == 0) *calls = 0x12345678;
}
