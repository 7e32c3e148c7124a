// m3/streams: the kernel of m3/stack_2, with the batch in parts whose copies and launches overlap.
//
// Idea      In addition to its multiprocessors, the GPU has a copy engine for each direction. Divide the batch into
//           parts, and give the three steps of each part (copy x in, launch, copy y out) to one of several streams in
//           turn. While a part computes, the previous part is copied out and the next one is copied in.
// Layout    as m3/stack_2. x and y are in pinned host memory, which the engines read and write directly, whereas a copy
//           from ordinary memory waits until the host has filled a staging buffer.
// Mapping   as m3/stack_2, for the images of one part; variant.py divides the batch.
// Roofline  the copies: N = 10,000, PCIe 5 at about 55 GB/s in each direction. Layer 1: 0.30 GB in and 1.02 GB out, 5.4
//           and 18.6 ms. Layer 2: 0.26 and 0.74 GB, 4.7 and 13.5 ms. Both directions run at once: the slower one is the
//           limit.
// Gain      over m3/stack_2: nothing in op time, because the kernel is the same. The layer time from host to host falls
//           from the sum of the three steps to little more than the slower copy. Meanwhile the kernel and the other
//           copy run, and only the first part's copy in and launch are not hidden. The faster the kernel is, the larger
//           is the share of the copies in a layer.
// Limits    a clock that stops when the last launch has been submitted to the GPU measures nothing: the layer time here
//           ends when the last image has arrived. x and y must be in pinned memory.
// Hazards   the stream orders the steps of a part; parts share no memory, so streams need not wait for each other. The
//           filters are copied before the first part. 64-bit offsets as in m3/stack_2.
// Source    CUDA C++ Programming Guide, "Page-Locked Host Memory" and "Asynchronous Concurrent Execution".
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
