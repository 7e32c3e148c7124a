// m3/cublas: unroll and permute of m2, with the matrix product by cuBLAS.
//
// Idea      The middle of the three steps is a plain matrix product, and NVIDIA provides a library for it.
// Layout    as m2/unroll_gemm: col (K, N P Q), gemm_out (M, N P Q), row-major. cuBLAS is column-major. It computes the
//           transposed product of the same memory, col by w, so nothing has to be transposed.
// Mapping   unroll and permute: as m2. The product: the kernel that the library chooses for M x cols x K.
// Roofline  the traffic of m2 remains: 28 GB for layer 1 and 20 GB for layer 2 at N = 10,000, 6.6 and 4.8 ms at 4.3
//           TB/s; 25.1 and 72.5 GFLOP are 0.37 and 1.08 ms at 67 TFLOP/s (strict fp32, no TF32).
// Gain      over m2/unroll_gemm: the GEMM of m2 is far from the speed of memory, and the library's should be near it.
//           However, M = 4 and 16 are small for a library whose tiles have 32 rows and more: most of each tile is
//           padding.
// Limits    a GPU only. cols below 2^31 (cuBLAS uses ints). The limits of m2 for unroll and permute.
// Hazards   none: the stream orders the three steps.
// Source    NVIDIA, "cuBLAS Library", sections "Data Layout" and "cublas<t>gemm()".
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
