// m3/tensor_cores_fp16: m3/tensor_cores with FP16 instead of TF32 inputs; the sums stay in FP32.
//
// Idea      FP16 has as many fraction bits as TF32, so storing col as half loses only range: each value is rounded
//           once, by unroll, and half as many bytes are written and read.
// Layout    x (N,C,H,W), w (M,C,R,S) = (M,K), gemm_out (M, 2 N pairs), y (N,M,P,Q), fp32, C order; col (K, N pairs) of
//           half2 in a float32 buffer, where each element has room for two halves. pairs = ceil(P Q / 2): the columns
//           of an image are padded to an even number, so that no half2 belongs to two images. w_tile [m][k] and
//           col_tile [k][column] half. Each row of a tile is followed by 8 unused halves, so that the eight 16-byte
//           pieces of rows that an ldmatrix reads at once are in different banks.
// Mapping   unroll: thread -> pair of pixels; permute: thread -> pixel; blockIdx.y -> channel c or m, blockIdx.z ->
//           image. gemm: a block of TILE_COLS / 2 threads -> TILE_M x TILE_COLS of gemm_out; a thread copies two
//           columns of col_tile as half2, 4 bytes at a time, as in the parent; a warp multiplies the 64 columns of its
//           own threads: four m16n16k16 products, or, for M up to 8, two m8n32k16 with half the padding.
// Roofline  at the course's shapes, N = 10,000, 4.3 TB/s: layer 1 has to move 1.32 GB (0.31 ms); with col (6.3 GB in
//           each direction) and gemm_out, 15.9 GB, 3.7 ms. Layer 2: 0.996 GB (0.23 ms); 11.5 GB, 2.7 ms. 25.1 and 72.5
//           GFLOP at 990 TFLOP/s: 0.03 and 0.07 ms; padded 66 and 83 GFLOP, 0.07 and 0.08 ms.
// Gain      over m3/tensor_cores: a factor of 1.8 if both wait only for memory, because 28.5 and 20.6 GB become 15.9
//           and 11.5; more if the parent is limited by its loads and stores of col, which are twice as many. The
//           doubled rate of the tensor cores and the flat product for M = 4 gain nothing here.
// Limits    half overflows above 65,504 and has subnormals below 6e-5, whereas TF32 has the range of float. col is read
//           ceil(M / TILE_M) times; M up to 8 or 16 x 65,535.
// Hazards   both __syncthreads in gemm; threads beyond the last column also reach both. The results replace col_tile, a
//           row of floats in the place of two rows of halves, after the last barrier; each warp reads only its own, so
//           __syncwarp is sufficient there. 64-bit indices into col and gemm_out.
// Source    CUDA C++ Programming Guide, "Warp Matrix Functions": pointers aligned to 32 B, pitches to 16 B.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int TILE_N = 256 / TILE_M, STEP = 16;  // a product is TILE_M x STEP by STEP x TILE_N
constexpr int W_PITCH = TILE_K + 8, PITCH = TILE_COLS + 8;
constexpr int TILES = 64 / TILE_N;  // products side by side in a warp
static_assert((TILE_M == 8 || TILE_M == 16) && TILE_K % STEP == 0 && TILE_COLS % 64 == 0, "tiles are whole products");
static_assert(2 * TILE_M * TILE_K % TILE_COLS == 0, "threads load equal parts of w_tile");
static_assert(TILE_K >= 2 * TILE_M, "the results take the place of col_tile");

extern "C" __global__ void unroll(const float* x, half2* col, int N, int C, int H, int W, int R, int S) {
  const int P = H - R + 1, Q = W - S + 1, pairs = (P * Q + 1) / 2;
  const int pair = blockIdx.x * blockDim.x + threadIdx.x;
  const int n = blockIdx.z;
  if (pair >= pairs) return;
  const int pixel = 2 * pair, next = min(pixel + 1, P * Q - 1);  // where P Q is odd, the last pixel twice
  const long long first = (long long)(pixel / Q) * W + pixel % Q, second = (long long)(next / Q) * W + next % Q;
  for (int c = blockIdx.y; c < C; c += gridDim.y)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) {
        const int k = (c * R + r) * S + s;
        const float* corner = x + (((long long)n * C + c) * H + r) * W + s;  // the input of output pixel (0, 0)
        col[((long long)k * N + n) * pairs + pair] = __floats2half2_rn(corner[first], corner[second]);
      }
}

extern "C" __global__ void __launch_bounds__(TILE_COLS / 2, 5)
    gemm(const float* w, const half2* col, float* gemm_out, int M, long long pairs, int K) {
  __shared__ __align__(128) half w_tile[TILE_M][W_PITCH], col_tile[TILE_K][PITCH];
  const int m0 = blockIdx.y * TILE_M, first = threadIdx.x / 32 * 64;  // first: the warp's first column in the tile
  const long long pair0 = (long long)blockIdx.x * (TILE_COLS / 2), pair = pair0 + threadIdx.x;

  wmma::fragment<wmma::accumulator, TILE_M, TILE_N, STEP, float> acc[TILES];
  for (int t = 0; t < TILES; t++) wmma::fill_fragment(acc[t], 0.0f);
  const half2* column = col + pair;
  for (int k0 = 0; k0 < K; k0 += TILE_K) {
#pragma unroll
    for (int i = 0; i < TILE_M * TILE_K; i += TILE_COLS / 2) {
      const int m = (i + threadIdx.x) / TILE_K, k = (i + threadIdx.x) % TILE_K;
      w_tile[m][k] = __float2half(m0 + m < M && k0 + k < K ? w[(long long)(m0 + m) * K + k0 + k] : 0.0f);
    }
    const int rows = pair < pairs ? K - k0 : 0;  // of this thread's columns from here on
#pragma unroll
    for (int k = 0; k < TILE_K; k++, column += pairs)
      *reinterpret_cast<half2*>(&col_tile[k][2 * threadIdx.x]) = k < rows ? *column : __float2half2_rn(0.0f);
    __syncthreads();  // the tiles are complete
#pragma unroll
    for (int k = 0; k < TILE_K; k += STEP) {
      wmma::fragment<wmma::matrix_a, TILE_M, TILE_N, STEP, half, wmma::row_major> w_fragment;
      wmma::load_matrix_sync(w_fragment, &w_tile[0][k], W_PITCH);
      for (int t = 0; t < TILES; t++) {
        wmma::fragment<wmma::matrix_b, TILE_M, TILE_N, STEP, half, wmma::row_major> col_fragment;
        wmma::load_matrix_sync(col_fragment, &col_tile[k][first + t * TILE_N], PITCH);
        wmma::mma_sync(acc[t], w_fragment, col_fragment, acc[t]);
      }
    }
    __syncthreads();  // the tiles have been read
  }

  // store_matrix_sync cannot write to gemm_out, whose rows are neither aligned nor whole tiles
  float* const out_tile = reinterpret_cast<float*>(col_tile) + first;  // [TILE_M][PITCH], this warp's columns
  for (int t = 0; t < TILES; t++) wmma::store_matrix_sync(out_tile + t * TILE_N, acc[t], PITCH, wmma::mem_row_major);
  __syncwarp();
  for (int i = threadIdx.x % 32; i < 64; i += 32) {
    const long long j = 2 * pair0 + first + i;
    if (j >= 2 * pairs) break;
    for (int m = 0; m < min(TILE_M, M - m0); m++) gemm_out[(m0 + m) * 2 * pairs + j] = out_tile[m * PITCH + i];
  }
}

extern "C" __global__ void permute(const float* gemm_out, float* y, int N, int M, int PQ) {
  const int padded = (PQ + 1) / 2 * 2;  // columns of an image in gemm_out
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int n = blockIdx.z;
  if (pixel >= PQ) return;
  for (int m = blockIdx.y; m < M; m += gridDim.y)
    y[((long long)n * M + m) * PQ + pixel] = gemm_out[((long long)m * N + n) * padded + pixel];
}
