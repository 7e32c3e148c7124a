// m3/register_tiling: unroll and permute as in m2/unroll_gemm; the GEMM with joint register and shared-memory tiles.
//
// Idea      A thread computes TILE_M x THREAD_COLS elements of gemm_out in registers. It loads a value of col once for
//           TILE_M products. The values of w, which all threads need, come from shared memory, four at a time.
// Layout    x (N,C,H,W), w (M,C,R,S) = (M,K), col (K, N P Q), gemm_out (M, N P Q), y (N,M,P,Q), fp32, C order. w_tile
//           [TILE_K][TILE_M]: the TILE_M values of a thread are adjacent, and all threads of a warp read the same ones.
// Mapping   unroll, permute: thread -> pixel, blockIdx.y -> channel c or m, blockIdx.z -> image.
//           gemm: a block -> TILE_M x TILE_COLS of gemm_out, a thread -> all its rows and every THREADS-th column, so
//           that loads and stores of a warp are 128 contiguous bytes. TILE_M follows M: 4 and 16 in the course's
//           layers. No two threads of a block need the same value of col, so shared memory would not help for it.
// Roofline  the bytes of m2, because col and gemm_out remain. Layer 1, N = 10,000, has to move 1.32 GB (0.31 ms at 4.3
//           TB/s). With col (12.5 GB written, 12.5 read) and gemm_out, these are 28.5 GB, 6.6 ms. Layer 2: 0.996 GB
//           (0.23 ms) become 20.6 GB, 4.8 ms. FLOPs at 67 TFLOP/s: 25.1 G, 0.37 ms, and 72.5 G, 1.08 ms; none are
//           padding.
// Gain      over m2/unroll_gemm: the gemm of m2 has 1.25 shared loads per FMA, and three quarters of its tile are empty
//           at M = 4, so these loads alone take 10 and 6 ms. Here 16 FMAs need 5 loads (M = 4) and 64 need 8 (M = 16).
//           Memory is then the limit, 3.2 and 2.3 ms. unroll and permute are unchanged, and become half of the time.
// Limits    col is read ceil(M / TILE_M) times; M at most 16 x 65,535. TILE_M x THREAD_COLS sums per thread leave
//           registers for few warps; instead, each thread has many loads in flight.
// Hazards   both __syncthreads in gemm: the first before w_tile is read, the second before it is overwritten. Threads
//           outside col also reach both: no early return. col has more than 2^31 elements: 64-bit indices.
// Source    D. Kirk, W. Hwu, "Programming Massively Parallel Processors": joint register and shared-memory tiling.
constexpr int THREADS = TILE_COLS / THREAD_COLS;
static_assert(TILE_COLS % THREAD_COLS == 0 && TILE_M % 4 == 0, "threads get whole columns, w_tile 16-byte loads");

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

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(const float* w, const float* col, float* gemm_out, int M, long long cols, int K) {
  __shared__ __align__(16) float w_tile[TILE_K][TILE_M];
  const int m0 = blockIdx.y * TILE_M;
  const long long j = (long long)blockIdx.x * TILE_COLS + threadIdx.x;  // the first of the thread's columns

  float acc[TILE_M][THREAD_COLS] = {};
  for (int k0 = 0; k0 < K; k0 += TILE_K) {
    const int depth = min(TILE_K, K - k0);
    for (int i = threadIdx.x; i < depth * TILE_M; i += THREADS) {
      const int m = i % TILE_M, k = i / TILE_M;
      w_tile[k][m] = m0 + m < M ? w[(long long)(m0 + m) * K + k0 + k] : 0.0f;
    }
    __syncthreads();  // the tile is complete
#pragma unroll 8
    for (int k = 0; k < depth; k++) {
      const float* const row = col + (k0 + k) * cols + j;
      float value[THREAD_COLS];
#pragma unroll
      for (int i = 0; i < THREAD_COLS; i++) value[i] = j + i * THREADS < cols ? row[i * THREADS] : 0.0f;
#pragma unroll
      for (int m = 0; m < TILE_M; m++)
#pragma unroll
        for (int i = 0; i < THREAD_COLS; i++) acc[m][i] += w_tile[k][m] * value[i];
    }
    __syncthreads();  // the tile has been read
  }

#pragma unroll
  for (int m = 0; m < TILE_M; m++)
#pragma unroll
    for (int i = 0; i < THREAD_COLS; i++)
      if (m0 + m < M && j + i * THREADS < cols) gemm_out[(m0 + m) * cols + j + i * THREADS] = acc[m][i];
}

extern "C" __global__ void permute(const float* gemm_out, float* y, int N, int M, int PQ) {
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int n = blockIdx.z;
  if (pixel >= PQ) return;
  for (int m = blockIdx.y; m < M; m += gridDim.y)
    y[((long long)n * M + m) * PQ + pixel] = gemm_out[((long long)m * N + n) * PQ + pixel];
}
