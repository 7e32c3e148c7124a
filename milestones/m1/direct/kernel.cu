// m1/direct: y[n][m][p][q] = sum over c, r, s of x[n][c][p + r][q + s] * w[m][c][r][s], one thread per output.
//
// Idea      No output depends on another one: the loops over n, m, p and q become threads, and those over c, r and s
//           stay loops.
// Layout    x (N,C,H,W), w (M,C,R,S), y (N,M,P,Q), fp32, C order; P = H - R + 1, Q = W - S + 1.
// Mapping   thread -> pixel p Q + q of an output plane; blockIdx.y -> m (and m + gridDim.y ... if M exceeds the limit
//           of a grid); blockIdx.z -> n. Neighbouring threads read neighbouring x (coalesced) and the same w.
// Roofline  bytes 4 (N C H W + M K + N M P Q), FLOPs 2 M K N P Q. At the course's shapes, N = 10,000, on a GPU of 4.3
//           TB/s and 67 TFLOP/s, layer 1 moves 1.32 GB (0.31 ms) for 25 GFLOP (0.37 ms), and layer 2 moves 1.00 GB
//           (0.23 ms) for 72 GFLOP (1.08 ms). Each FMA needs two loads in this kernel: 3 and 9 ms at one load of a warp
//           per clock and SM (132 SMs, 1.98 GHz). However, nvcc does not know S, so the 7 products of a filter row take
//           some 105 instructions, most of them for 64-bit addresses and loop tests: 6.4 and 17.6 ms at four
//           instructions per clock and SM.
// Gain      over m1/cpu: some 200,000 threads at a time instead of a few cores, and memory that is fifty times faster.
// Limits    none on the shape. Only the caches provide reuse.
// Hazards   none: threads share nothing.
// Source    W. Hwu, D. Kirk, I. El Hajj, "Programming Massively Parallel Processors", 4th ed., chapters 3 and 7.
extern "C" __global__ void conv_direct(const float* x, const float* w, float* y, int C, int H, int W, int M, int R,
                                       int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int n = blockIdx.z;
  if (pixel >= P * Q) return;  // the last block of a plane has threads without a pixel
  const int p = pixel / Q, q = pixel % Q;

  for (int m = blockIdx.y; m < M; m += gridDim.y) {
    float acc = 0.0f;
    for (int c = 0; c < C; c++)
      for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++) {
          // 64 bits: N C H W exceeds 2^31 at large batches
          const float value = x[(((long long)n * C + c) * H + p + r) * W + q + s];
          acc += value * w[(((long long)m * C + c) * R + r) * S + s];
        }
    y[((long long)n * M + m) * P * Q + pixel] = acc;
  }
}
