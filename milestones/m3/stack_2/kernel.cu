// m3/stack_2: m3/stack_1 with filter sizes known to the compiler, unrolled loops, __restrict__ and FP16 inputs.
//
// Idea      If the size of the filter is a constant, the loops of the gather unroll. The only index arithmetic is then
//           one address per image row. Inputs stay in registers from one filter column to the next, so two neighbouring
//           pixels need S + 1 inputs of a row instead of 2 S. Packed as half2, they are stored by one instruction, and
//           the tensor cores process FP16 at twice the rate of TF32, in steps of 16. __restrict__ promises that no
//           store changes x or w, so their loads may be moved before stores.
// Layout    x (N,C,H,W), w (M,C,R,S), y (N,M,P,Q), fp32, C order. w_tile [m][k] and col_tile [k][column] half, k = (c,
//           r, s) within a chunk of CHUNK_C channels, CHUNK_R filter rows and CHUNK_S filter columns (one channel of 7
//           x 7 in the course's layers), then zeros to a multiple of 16. Columns are output pixels, and their rows are
//           padded to whole pairs. Each row of a tile is followed by 8 unused halves, so that the eight 16-byte pieces
//           of rows that an ldmatrix reads at once are in different banks.
// Mapping   a block of TILE_COLS / 2 threads -> TILE_M channels (blockIdx.y) x TILE_COLS pixels of image blockIdx.z; a
//           thread gathers the columns of two neighbouring pixels; a warp multiplies the 64 columns of its own
//           threads: four m16n16k16 products, or, for M up to 8, two m8n32k16 with half the padding.
// Roofline  at the course's shapes, N = 10,000, 4.3 TB/s: bytes 1.32 and 0.996 GB, 0.31 and 0.23 ms, as the parent.
//           FLOPs 25.1 and 72.5 G at 990 TFLOP/s, 0.03 and 0.07 ms; padded (M = 4 to 8, 49 to 64, P Q to whole tiles)
//           66 and 105 G, 0.07 and 0.11 ms. The limit is still the operand, which is gathered 49 times. 6.3 and 5.0 GB
//           of halves are written to shared memory and, with the padding, 8.2 and 6.6 GB are read from it: about 0.2 ms
//           each at 128 B per clock and SM. 14 values need 8 loads from the L1 cache, each of which touches two or
//           three lines: 0.5 and 0.4 ms. A warp issues some 770 and 2,200 instructions: 0.7 and 0.4 ms at four per
//           clock and SM.
// Gain      over m3/stack_1: up to 3.5 times. Instructions take 2.6 and 1.6 ms there. Here those of the gather fall
//           from some 12 per element of col_tile to less than 2, and shared memory moves half the bytes.
//           m3/sliding_window then removes the 49-fold copy.
// Limits    one compilation per C, M, R, S. Inputs above 65,504 become infinite. M up to 8 or 16 x 65,535. Every block
//           of channels gathers again. An odd Q leaves one column in each output row idle.
// Hazards   both __syncthreads: tiles complete, tiles read. The rows of the padding are multiplied by zero weights and
//           must be finite: they are zeros. The results replace col_tile, a row of floats in the place of two rows of
//           halves, after the last barrier; each warp reads only its own, so __syncwarp is sufficient there. N C H W
//           exceeds 2^31: 64-bit indices.
// Source    CUDA C++ Programming Guide, "Warp Matrix Functions": pointers aligned to 32 B, pitches to 16 B.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int TILE_N = 256 / TILE_M, STEP = 16;  // a product is TILE_M x STEP by STEP x TILE_N
constexpr int THREADS = TILE_COLS / 2, WARPS = THREADS / 32;
constexpr int TILES = 64 / TILE_N;                                 // products side by side in a warp
constexpr int CHUNK = CHUNK_C * CHUNK_R * CHUNK_S;                 // rows of col_tile without padding
constexpr int CHUNK_K = (CHUNK + STEP - 1) / STEP * STEP;          // and with
constexpr int ROWS = CHUNK_K > 2 * TILE_M ? CHUNK_K : 2 * TILE_M;  // room for the results, too
constexpr int W_PITCH = CHUNK_K + 8, PITCH = TILE_COLS + 8;
static_assert((TILE_M == 8 || TILE_M == 16) && TILE_COLS % 64 == 0, "tiles are whole products");
static_assert(TILE_M % WARPS == 0, "warps load equal parts of w_tile");

// Gathers the chunk's inputs of two neighbouring output pixels. x points at the input of the first pixel for c = r = s
// = 0. pair is 1 if the output row has a second pixel, and 0 otherwise.
__device__ void unroll(const float* __restrict__ x, half (*col_tile)[PITCH], int c0, int r0, int s0, int pair, int H,
                       int W) {
#pragma unroll
  for (int c = 0; c < CHUNK_C; c++)
#pragma unroll
    for (int r = 0; r < CHUNK_R; r++) {
      const bool inside = (C % CHUNK_C == 0 || c0 + c < C) && (R % CHUNK_R == 0 || r0 + r < R);
      const float* const row = x + ((long long)(c0 + c) * H + r0 + r) * W + s0;
      float value[CHUNK_S + 1];
#pragma unroll
      for (int s = 0; s <= CHUNK_S; s++) value[s] = inside && s0 + s < S + pair ? row[s] : 0.0f;
#pragma unroll
      for (int s = 0; s < CHUNK_S; s++) {
        const bool used = S % CHUNK_S == 0 || s0 + s < S;
        *reinterpret_cast<half2*>(&col_tile[(c * CHUNK_R + r) * CHUNK_S + s][2 * threadIdx.x]) =
            __floats2half2_rn(used ? value[s] : 0.0f, used ? value[s + 1] : 0.0f);
      }
    }
}

// Loads the chunk's weights. There are zeros beyond the channels and the filter, and in the padding.
__device__ void load_w(const float* __restrict__ w, half (*w_tile)[W_PITCH], int m0, int c0, int r0, int s0) {
  for (int k = threadIdx.x % 32; k < CHUNK_K; k += 32) {
    const int s = s0 + k % CHUNK_S, r = r0 + k / CHUNK_S % CHUNK_R, c = c0 + k / CHUNK_S / CHUNK_R;
    const bool inside = k < CHUNK && c < C && r < R && s < S;
#pragma unroll
    for (int i = 0; i < TILE_M; i += WARPS) {
      const int m = i + threadIdx.x / 32;
      w_tile[m][k] = __float2half(inside && m0 + m < M ? w[(((long long)(m0 + m) * C + c) * R + r) * S + s] : 0.0f);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    conv_fused(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int H, int W) {
  __shared__ __align__(128) half w_tile[TILE_M][W_PITCH], col_tile[ROWS][PITCH];
  const int P = H - R + 1, Q = W - S + 1;
  const int pairs_q = (Q + 1) / 2, pairs = P * pairs_q;               // of an output row, and of the plane
  const int m0 = blockIdx.y * TILE_M, first = threadIdx.x / 32 * 64;  // first: the warp's first column in the tile
  x += (long long)blockIdx.z * C * H * W;
  y += (long long)blockIdx.z * M * P * Q;
  const int own = blockIdx.x * THREADS + threadIdx.x, near = min(own, pairs - 1);  // beyond the plane: its last pair
  const int q_near = near % pairs_q * 2;
  const float* const corner = x + (long long)(near / pairs_q) * W + q_near;

  wmma::fragment<wmma::accumulator, TILE_M, TILE_N, STEP, float> acc[TILES];
#pragma unroll
  for (int t = 0; t < TILES; t++) wmma::fill_fragment(acc[t], 0.0f);
  for (int k = CHUNK; k < CHUNK_K; k++)
    *reinterpret_cast<half2*>(&col_tile[k][2 * threadIdx.x]) = __float2half2_rn(0.0f);
  for (int c0 = 0; c0 < C; c0 += CHUNK_C)
    for (int r0 = 0; r0 < R; r0 += CHUNK_R)
      for (int s0 = 0; s0 < S; s0 += CHUNK_S) {
        unroll(corner, col_tile, c0, r0, s0, q_near + 1 < Q, H, W);
        load_w(w, w_tile, m0, c0, r0, s0);
        __syncthreads();  // the tiles are complete
#pragma unroll
        for (int k = 0; k < CHUNK_K; k += STEP) {
          wmma::fragment<wmma::matrix_a, TILE_M, TILE_N, STEP, half, wmma::row_major> w_fragment;
          wmma::load_matrix_sync(w_fragment, &w_tile[0][k], W_PITCH);
#pragma unroll
          for (int t = 0; t < TILES; t++) {
            wmma::fragment<wmma::matrix_b, TILE_M, TILE_N, STEP, half, wmma::row_major> col_fragment;
            wmma::load_matrix_sync(col_fragment, &col_tile[k][first + t * TILE_N], PITCH);
            wmma::mma_sync(acc[t], w_fragment, col_fragment, acc[t]);
          }
        }
        __syncthreads();  // the tiles have been read
      }

  float* const out_tile = reinterpret_cast<float*>(col_tile) + first;  // [TILE_M][PITCH], this warp's columns
#pragma unroll
  for (int t = 0; t < TILES; t++) wmma::store_matrix_sync(out_tile + t * TILE_N, acc[t], PITCH, wmma::mem_row_major);
  __syncwarp();
  for (int i = threadIdx.x % 32; i < 64; i += 32) {
    const int column = first + i, pair = blockIdx.x * THREADS + column / 2;
    const int p = pair / pairs_q, q = pair % pairs_q * 2 + column % 2;
    if (p >= P || q >= Q) continue;
    for (int m = 0; m < min(TILE_M, M - m0); m++) y[((long long)(m0 + m) * P + p) * Q + q] = out_tile[m * PITCH + i];
  }
}
