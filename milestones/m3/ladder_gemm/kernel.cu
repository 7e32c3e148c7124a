// m3/ladder_gemm: m3/cublas with the matrix product by a rung of ladders/gemm.
//
// Idea      The middle of the three steps is a plain matrix product, and any rung of the ladder can compute it.
// Layout    as m2/unroll_gemm: col (K, N P Q), gemm_out (M, N P Q), row-major, which the rungs support directly.
// Mapping   unroll and permute: as m2. The product: the launches of the rung, from its own kernel file.
// Roofline  the traffic of m2 remains: 28 GB for layer 1 and 20 GB for layer 2 at N = 10,000, 6.6 and 4.8 ms at 4.3
//           TB/s; 25.1 and 72.5 GFLOP are 0.37 and 1.08 ms at 67 TFLOP/s.
// Gain      over m3/cublas: none is likely. gemm/v3_registers has tiles of 128 rows, whereas M is 4 and 16. It computes
//           32 and 8 times as much as necessary, which takes 12 and 9 ms if its FMAs are the limit. A rung with small
//           tiles would be better.
// Limits    those of the rung; the limits of m2 for unroll and permute.
// Hazards   none: the stream orders the three steps.
// Source    ladders/gemm/README.md.
extern "C" __global__ void unroll(const float* x, float* col, int N, int C, int H, int W, int R, int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int n = blockIdx.z;
  if (pixel >= P * Q) return;
  const int p = pixel / Q, q = pixel % Q;
  for (int c = blockIdx.y; c < C; c += gridDim.y)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) {
        const int k = (c * R + r) * S + s;
        col[((long long)k * N + n) * P * Q + pixel] = x[(((long long)n * C + c) * H + p + r) * W + q + s];
      }
}

extern "C" __global__ void permute(const float* gemm_out, float* y, int N, int M, int PQ) {
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int n = blockIdx.z;
  if (pixel >= PQ) return;
  for (int m = blockIdx.y; m < M; m += gridDim.y)
    y[((long long)n * M + m) * PQ + pixel] = gemm_out[((long long)m * N + n) * PQ + pixel];
}
