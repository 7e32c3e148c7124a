// m3/fusion: unroll, GEMM and permute of m2/unroll_gemm in one kernel, without col and gemm_out.
//
// Idea      The tile loader of the GEMM computes where an element of col comes from, and reads x there. An element of
//           the product is written where permute would have put it.
// Layout    x (N,C,H,W), w (M,C,R,S) = (M,K), y (N,M,P,Q), fp32, C order. Tiles as in m2.
// Mapping   blockIdx.x -> TILE pixels p Q + q of an output plane, blockIdx.y -> TILE channels m, blockIdx.z -> image:
//           the columns of a block belong to one image, so its tile of the product is already in the order of y. A
//           thread -> one element of y; it loads one element of each tile per step of k.
// Roofline  bytes 4 (N C H W + M K + N M P Q). Layer 1, N = 10,000: 1.32 GB, 0.31 ms at 4.3 TB/s; 25.1 GFLOP, 0.37 ms
//           at 67 TFLOP/s. Layer 2: 0.996 GB, 0.23 ms; 72.5 GFLOP, 1.08 ms. There is no other traffic: the R S repeated
//           reads of x hit the caches. The FLOPs grow with the padding of M and K to TILE: to 131 G, because M = 4
//           fills a quarter of a tile, and to 78 G. Instructions are the limit. A warp issues 111 per step of k, of
//           which 16 are FMAs and 20 are shared loads. It issues only 58 if its rows of the tile are beyond K. Before
//           and after the loop it issues some 100. With 4 and 13 steps, this takes 15.0 and 8.4 ms at four instructions
//           per clock and SM (132 SMs, 1.98 GHz; counted in sm_90's machine code).
// Gain      over m2/unroll_gemm: two kernels fewer, and 27 and 20 GB less traffic, which take at least 6.3 and 4.5 ms.
//           The time of the GEMM itself remains. The cost is two integer divisions per element in the loader, which are
//           half of all instructions.
// Limits    M at most TILE x 65,535. Planes much smaller than TILE pixels leave threads idle.
// Hazards   both __syncthreads: the first before tiles are read, the second before they are overwritten. Threads
//           outside y still load and wait: no early return. N C H W exceeds 2^31 at large batches: 64-bit offsets.
// Source    S. Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", arXiv:1410.0759, section 3: the
//           unrolled matrix is made in on-chip memory only.
extern "C" __global__ void conv_fused(const float* x, const float* w, float* y, int C, int H, int W, int M, int R,
                                      int S) {
  __shared__ float w_tile[TILE][TILE], col_tile[TILE][TILE];
  const int P = H - R + 1, Q = W - S + 1, K = C * R * S;
  const int m = blockIdx.y * TILE + threadIdx.y;
  const int pixel = blockIdx.x * TILE + threadIdx.x;
  const int p = pixel / Q, q = pixel % Q;
  x += (long long)blockIdx.z * C * H * W;
  y += (long long)blockIdx.z * M * P * Q;

  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += TILE) {
    const int k_w = k0 + threadIdx.x;
    const unsigned k_col = k0 + threadIdx.y;  // unsigned: its divisions take fewer instructions
    const int s = k_col % S, r = k_col / S % R, c = k_col / S / R;
    w_tile[threadIdx.y][threadIdx.x] = m < M && k_w < K ? w[(long long)m * K + k_w] : 0.0f;
    col_tile[threadIdx.y][threadIdx.x] = pixel < P * Q && k_col < K ? x[(long long)(c * H + p + r) * W + q + s] : 0.0f;
    __syncthreads();  // the tiles are complete
    for (int k = 0; k < TILE; k++) acc += w_tile[threadIdx.y][k] * col_tile[k][threadIdx.x];
    __syncthreads();  // the tiles have been read
  }
  if (m < M && pixel < P * Q) y[(long long)m * P * Q + pixel] = acc;
}
