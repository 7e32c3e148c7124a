// m3/sweep: m3/register_tiling with a search of its block and thread sizes; variant.py has the candidates and the best.
//
// Idea      More columns per thread use each load of w for more products and keep more loads in flight, but need
//           registers, so fewer threads fit on an SM. With more columns per block, w_tile is filled less often, but
//           there are fewer blocks, and these are distributed less evenly over the SMs. No formula gives the best pair,
//           so it is measured.
// Layout    x (N,C,H,W), w (M,C,R,S) = (M,K), col (K, N P Q), gemm_out (M, N P Q), y (N,M,P,Q), fp32, C order.
//           w_tile [TILE_K][TILE_M].
// Mapping   unroll, permute: thread -> pixel, blockIdx.y -> channel c or m, blockIdx.z -> image.
//           gemm: a block -> TILE_M x TILE_COLS of gemm_out, a thread -> all its rows and every THREADS-th column. The
//           search varies TILE_COLS and THREAD_COLS. THREADS is their quotient, 32 to 1024.
// Roofline  as m3/register_tiling. Layer 1, N = 10,000, has to move 1.32 GB (0.31 ms at 4.3 TB/s). With col and
//           gemm_out, these are 28.5 GB, 6.6 ms. Layer 2: 0.996 GB (0.23 ms) become 20.6 GB, 4.8 ms. FLOPs at 67
//           TFLOP/s: 25.1 G, 0.37 ms, and 72.5 G, 1.08 ms.
// Gain      over m3/register_tiling: hardly any. Reading col limits the gemm, and each candidate that keeps some 20 KB
//           of loads in flight on an SM reads at full speed. The extremes show the value of the choice: with one column
//           per thread, each load of w is used once and few loads are in flight; with eight, there are 8 TILE_M sums in
//           registers, 32 at M = 4, but 128 and few warps at M = 16. unroll and permute are unchanged.
// Limits    those of m3/register_tiling. The best pair holds for one GPU and one network. On sm_75 and sm_80, one
//           column per thread spills a few registers.
// Hazards   those of m3/register_tiling: both __syncthreads in gemm, no early return there, 64-bit indices in col.
// Source    V. Volkov, "Better Performance at Lower Occupancy", GTC 2010: work per thread against threads.
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
