// m3/stack_1: unroll, GEMM and permute in one kernel (m3/fusion), the GEMM on the tensor cores (m3/tensor_cores).
//
// Idea      Fusion removes the traffic of col, and tensor cores remove the shared-memory loads of the GEMM. Each alone
//           leaves the limit of the other, so together they gain more than either.
// Layout    x (N,C,H,W), w (M,C,R,S) = (M,K), y (N,M,P,Q), fp32, C order. w_tile [TILE_M][W_PITCH] and col_tile
//           [TILE_K][COL_PITCH] in shared memory, rounded to TF32 where they are written. The pitches are 4 and 8 more
//           than a multiple of 32, so that the words that one load of a fragment touches are in 32 different banks.
// Mapping   a block of TILE_COLS threads -> TILE_M channels (blockIdx.y) x TILE_COLS pixels of image blockIdx.z. A
//           thread gathers one column of col_tile, the inputs of its pixel; neighbouring threads read neighbouring x.
//           All are at the same filter element k = (c, r, s). offset[k] is the distance from the input of element 0 to
//           that of element k. It is computed once per block, not once per thread. A warp multiplies the 32 columns of
//           its own threads.
// Roofline  at the course's shapes, N = 10,000, 4.3 TB/s: bytes 1.32 and 0.996 GB, 0.31 and 0.23 ms; inputs that two
//           blocks share come from the L2 cache. FLOPs 25.1 and 72.5 G at 495 TFLOP/s, 0.05 and 0.15 ms; padded (M = 4
//           to 16, K and P Q to whole tiles) 131 and 92 G, 0.26 and 0.19 ms. The gather reads every input R S = 49
//           times from the L1 cache, 12.5 and 9.1 GB. The same amount is written to shared memory and read again. Each
//           of the three takes about 0.4 and 0.3 ms at 128 B per clock and SM. Instructions are the limit: some 17 for
//           every element of col_tile (12 of them for the gather), and 250 and 380 per warp before and after the loop.
//           They take 2.6 and 1.6 ms at four per clock and SM.
// Gain      over m3/fusion, whose instructions take 15.0 and 8.4 ms: up to five times.
// Limits    needs sm_80; M up to 16 x 65,535. TF32 keeps 10 fraction bits of an operand. Every block of channels
//           gathers again. Rows beyond K load row 0 again, and are set to zero.
// Hazards   __syncthreads on both sides of the product: tiles complete, tiles read. offset is written for the next
//           tiles between these two, when no thread reads it. The results replace col_tile, each warp in its own
//           columns, so __syncwarp is sufficient between its store and its loads. N C H W exceeds 2^31: 64-bit indices.
// Source    CUDA C++ Programming Guide, "Warp Matrix Functions": pointers aligned to 32 B, pitches to 16 B.
#include <mma.h>

using namespace nvcuda;

constexpr int SIDE = 16, STEP = 8;  // a product is SIDE x STEP by STEP x SIDE
constexpr int W_PITCH = TILE_K + 4, COL_PITCH = TILE_COLS + 8;
constexpr int TILES = 32 / SIDE;  // products side by side in a warp
static_assert(TILE_M == SIDE && TILE_K % STEP == 0 && TILE_COLS % 32 == 0, "tiles are whole products");
static_assert(TILE_M * TILE_K % TILE_COLS == 0 && TILE_K <= TILE_COLS, "threads load equal parts of w_tile");
static_assert(TILE_K >= TILE_M, "the results take the place of col_tile");

// The distance from the input of filter element 0 to that of element k, in elements of x. It is 0 beyond the last
// filter element, so that no load needs a condition.
__device__ long long input_offset(int k, int C, int H, int W, int R, int S) {
  const int s = k % S, r = k / S % R, c = k / S / R;
  return c < C ? ((long long)c * H + r) * W + s : 0;
}

extern "C" __global__ void __launch_bounds__(TILE_COLS, 5)
    conv_fused(const float* x, const float* w, float* y, int C, int H, int W, int M, int R, int S) {
  __shared__ __align__(128) float w_tile[TILE_M][W_PITCH], col_tile[TILE_K][COL_PITCH];
  __shared__ long long offset[TILE_K];
  const int P = H - R + 1, Q = W - S + 1, K = C * R * S;
  const int m0 = blockIdx.y * TILE_M, first = threadIdx.x / 32 * 32;  // first: the warp's first column in the tile
  const int pixel = blockIdx.x * TILE_COLS + threadIdx.x;
  const int near = min(pixel, P * Q - 1);  // threads beyond the plane repeat its last pixel
  x += (long long)blockIdx.z * C * H * W;
  y += (long long)blockIdx.z * M * P * Q;
  const float* const corner = x + (long long)(near / Q) * W + near % Q;  // its input at c = r = s = 0

  wmma::fragment<wmma::accumulator, SIDE, SIDE, STEP, float> acc[TILES];
  for (int t = 0; t < TILES; t++) wmma::fill_fragment(acc[t], 0.0f);
  if (threadIdx.x < TILE_K) offset[threadIdx.x] = input_offset(threadIdx.x, C, H, W, R, S);
  __syncthreads();
  for (int k0 = 0; k0 < K; k0 += TILE_K) {
#pragma unroll
    for (int i = 0; i < TILE_M * TILE_K; i += TILE_COLS) {
      const int m = (i + threadIdx.x) / TILE_K, k = (i + threadIdx.x) % TILE_K;
      const float weight = m0 + m < M && k0 + k < K ? w[(long long)(m0 + m) * K + k0 + k] : 0.0f;
      w_tile[m][k] = wmma::__float_to_tf32(weight);
    }
    float value[TILE_K];  // all loads are in flight before the first value is needed
#pragma unroll
    for (int k = 0; k < TILE_K; k++) value[k] = corner[offset[k]];
    if (k0 + TILE_K > K)  // an infinity in a row past K would make NaN of its zero weights
#pragma unroll
      for (int k = 0; k < TILE_K; k++) value[k] = k0 + k < K ? value[k] : 0.0f;
#pragma unroll
    for (int k = 0; k < TILE_K; k++) col_tile[k][threadIdx.x] = wmma::__float_to_tf32(value[k]);
    __syncthreads();  // the tiles are complete
    if (threadIdx.x < TILE_K) offset[threadIdx.x] = input_offset(k0 + TILE_K + threadIdx.x, C, H, W, R, S);
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

  // store_matrix_sync cannot write to y, whose planes are neither aligned nor whole tiles
  for (int t = 0; t < TILES; t++)
    wmma::store_matrix_sync(&col_tile[0][first + t * SIDE], acc[t], COL_PITCH, wmma::mem_row_major);
  __syncwarp();
  if (pixel >= P * Q) return;
  for (int m = 0; m < min(TILE_M, M - m0); m++) y[(long long)(m0 + m) * P * Q + pixel] = col_tile[m][threadIdx.x];
}
