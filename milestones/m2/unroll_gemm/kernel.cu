// m2/unroll_gemm: the convolution as a matrix product, in three kernels: unroll, GEMM, permute.
//
// Idea      Write the R S C inputs of each output pixel as one column of a matrix col (K x cols). Then y is w (M x K)
//           times col, and the shared-memory tiles of a GEMM use each load for TILE products.
// Layout    x (N,C,H,W), w (M,C,R,S) = (M,K), col (K, N P Q), gemm_out (M, N P Q), y (N,M,P,Q), fp32, C order.
// Mapping   unroll: thread -> pixel, blockIdx.y -> channel c, blockIdx.z -> image.
//           gemm: a block -> a TILE x TILE tile of gemm_out, a thread -> one element of it.
//           permute: thread -> pixel, blockIdx.y -> m, blockIdx.z -> image.
// Roofline  the FLOPs are those of m1/direct, but the bytes are not: col is written once and read ceil(M / TILE) times,
//           and gemm_out is written and read. Layer 1, N = 10,000: 12.5 GB written, 12.5 GB read and 3 GB for the rest
//           are 28 GB, 6.6 ms at 4.3 TB/s. Layer 2: 9 + 9 + 2.5 GB, 4.8 ms.
// Gain      over m1/direct: none on a GPU with large caches, because the traffic of col outweighs the reuse. The gain
//           is the form: every later milestone starts from this product.
// Limits    memory for col. If C or M exceeds the limit of a grid's y axis, a block processes every gridDim.y-th row.
// Hazards   both __syncthreads in gemm: the first before tiles are read, the second before they are overwritten. col
//           has more than 2^31 elements at the course's batch: 64-bit indices.
// Source    K. Chellapilla, S. Puri, P. Simard, "High Performance Convolutional Neural Networks for Document
//           Processing", IWFHR 2006: unrolling; CUDA C++ Programming Guide, "Shared Memory": the tiled product.
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

extern "C" __global__ void gemm(const float* w, const float* col, float* gemm_out, int M, long long cols, int K) {
  __shared__ float w_tile[TILE][TILE], col_tile[TILE][TILE];
  const int m = blockIdx.y * TILE + threadIdx.y;
  const long long j = (long long)blockIdx.x * TILE + threadIdx.x;

  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += TILE) {
    const int k_w = k0 + threadIdx.x, k_col = k0 + threadIdx.y;
    w_tile[threadIdx.y][threadIdx.x] = m < M && k_w < K ? w[(long long)m * K + k_w] : 0.0f;
    col_tile[threadIdx.y][threadIdx.x] = j < cols && k_col < K ? col[k_col * cols + j] : 0.0f;
    __syncthreads();  // the tiles are complete
    for (int k = 0; k < TILE; k++) acc += w_tile[threadIdx.y][k] * col_tile[k][threadIdx.x];
    __syncthreads();  // the tiles have been read
  }
  if (m < M && j < cols) gemm_out[m * cols + j] = acc;
}

extern "C" __global__ void permute(const float* gemm_out, float* y, int N, int M, int PQ) {
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int n = blockIdx.z;
  if (pixel >= PQ) return;
  for (int m = blockIdx.y; m < M; m += gridDim.y)
    y[((long long)n * M + m) * PQ + pixel] = gemm_out[((long long)m * N + n) * PQ + pixel];
}
