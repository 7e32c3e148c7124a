// m3/tensor_cores: unroll and permute as in m2/unroll_gemm; the GEMM on the tensor cores, TF32 in, FP32 sum.
//
// Idea      m2's GEMM needs five shared-memory loads for four FMAs. A warp's WMMA product of 16 x 8 by 8 x 16 reads
//           256 values for 2,048 FMAs, and the tensor cores do these in a few clocks.
// Layout    x (N,C,H,W), w (M,C,R,S) = (M,K), col (K, N P Q), gemm_out (M, N P Q), y (N,M,P,Q), fp32, C order.
//           w_tile [TILE_M][W_PITCH], col_tile [TILE_K][COL_PITCH]. Values are rounded to TF32 when they are written to
//           the tiles. If the fragments were rounded instead, every warp would round those of w again. The pitches are
//           4 and 8 more than a multiple of 32, so that the words that one load of a fragment touches are in 32
//           different banks.
// Mapping   unroll, permute: thread -> pixel, blockIdx.y -> channel c or m, blockIdx.z -> image. gemm: a block of
//           TILE_COLS threads -> TILE_M x TILE_COLS of gemm_out. A thread copies one column of col_tile, and the loads
//           of neighbours are coalesced. With five blocks per SM, a thread has 96 registers, so all of its TILE_K loads
//           can be in flight at once. A warp multiplies the 32 columns of its own threads.
// Roofline  at the course's shapes, N = 10,000, 4.3 TB/s: layer 1 has to move 1.32 GB (0.31 ms). col (12.5 GB in each
//           direction) and gemm_out are also written and read: 28.5 GB, 6.6 ms. Layer 2: 0.996 GB (0.23 ms); 20.6 GB,
//           4.8 ms. 25.1 and 72.5 GFLOP at 495 TFLOP/s: 0.05 and 0.15 ms; with M = 4 padded to 16 and K to whole tiles
//           131 and 83 GFLOP, 0.26 and 0.17 ms.
// Gain      over m2/unroll_gemm: the gemm of m2 is bound by shared memory (about 10 and 6 ms), and this one by reading
//           col and writing gemm_out (3.2 and 2.3 ms). unroll and permute are unchanged. M = 4 fills a quarter of the
//           rows of a product, which costs nothing while the tensor cores wait for memory.
// Limits    needs sm_80. TF32 keeps 10 fraction bits of an operand. col is read ceil(M / TILE_M) times; M up to 16 x
//           65,535.
// Hazards   both __syncthreads in gemm, as in m2; threads beyond the last column also reach both. The results replace
//           col_tile, each warp in its own columns, so __syncwarp is sufficient between its store and its loads. col
//           has more than 2^31 elements: 64-bit indices.
// Source    CUDA C++ Programming Guide, "Warp Matrix Functions": pointers aligned to 32 B, pitches to 16 B.
#include <mma.h>

using namespace nvcuda;

constexpr int SIDE = 16, STEP = 8;  // a product is SIDE x STEP by STEP x SIDE
constexpr int W_PITCH = TILE_K + 4, COL_PITCH = TILE_COLS + 8;
constexpr int TILES = 32 / SIDE;  // products side by side in a warp
static_assert(TILE_M == SIDE && TILE_K % STEP == 0 && TILE_COLS % 32 == 0, "tiles are whole products");
static_assert(TILE_M * TILE_K % TILE_COLS == 0, "threads load equal parts of w_tile");
static_assert(TILE_K >= TILE_M, "the results take the place of col_tile");

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

extern "C" __global__ void __launch_bounds__(TILE_COLS, 5)
    gemm(const float* w, const float* col, float* gemm_out, int M, long long cols, int K) {
  __shared__ __align__(128) float w_tile[TILE_M][W_PITCH], col_tile[TILE_K][COL_PITCH];
  const int m0 = blockIdx.y * TILE_M, first = threadIdx.x / 32 * 32;  // first: the warp's first column in the tile
  const long long j = (long long)blockIdx.x * TILE_COLS + threadIdx.x;

  wmma::fragment<wmma::accumulator, SIDE, SIDE, STEP, float> acc[TILES];
  for (int t = 0; t < TILES; t++) wmma::fill_fragment(acc[t], 0.0f);
  const float* column = col + j;
  for (int k0 = 0; k0 < K; k0 += TILE_K) {
#pragma unroll
    for (int i = 0; i < TILE_M * TILE_K; i += TILE_COLS) {
      const int m = (i + threadIdx.x) / TILE_K, k = (i + threadIdx.x) % TILE_K;
      const float value = m0 + m < M && k0 + k < K ? w[(long long)(m0 + m) * K + k0 + k] : 0.0f;
      w_tile[m][k] = wmma::__float_to_tf32(value);
    }
    const int rows = j < cols ? K - k0 : 0;  // of this thread's column from here on
#pragma unroll
    for (int k = 0; k < TILE_K; k++, column += cols) {
      const float value = k < rows ? *column : 0.0f;
      col_tile[k][threadIdx.x] = wmma::__float_to_tf32(value);
    }
    __syncthreads();  // the tiles are complete
#pragma unroll
    for (int k = 0; k < TILE_K; k += STEP) {
      wmma::fragment<wmma::matrix_a, SIDE, SIDE, STEP, wmma::precision::tf32, wmma::row_major> w_fragment;
      wmma::load_matrix_sync(w_fragment, &w_tile[0][k], W_PITCH);
      for (int t = 0; t < TILES; t++) {
        wmma::fragment<wmma::matrix_b, SIDE, SIDE, STEP, wmma::precision::tf32, wmma::row_major> col_fragment;
        wmma::load_matrix_sync(col_fragment, &col_tile[k][first + t * SIDE], COL_PITCH);
        wmma::mma_sync(acc[t], w_fragment, col_fragment, acc[t]);
      }
    }
    __syncthreads();  // the tiles have been read
  }

  // store_matrix_sync cannot write to gemm_out, whose rows are neither aligned nor whole tiles
  for (int t = 0; t < TILES; t++)
    wmma::store_matrix_sync(&col_tile[0][first + t * SIDE], acc[t], COL_PITCH, wmma::mem_row_major);
  __syncwarp();
  if (j >= cols) return;
  for (int m = 0; m < min(TILE_M, M - m0); m++) gemm_out[(m0 + m) * cols + j] = col_tile[m][threadIdx.x];
}

extern "C" __global__ void permute(const float* gemm_out, float* y, int N, int M, int PQ) {
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int n = blockIdx.z;
  if (pixel >= PQ) return;
  for (int m = blockIdx.y; m < M; m += gridDim.y)
    y[((long long)n * M + m) * PQ + pixel] = gemm_out[((long long)m * N + n) * PQ + pixel];
}
