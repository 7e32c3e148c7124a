// layers/custom: unroll -> GEMM -> permute fused into one kernel on the tensor cores (WMMA).
//
// Idea      The unrolled matrix repeats itself: with its rows ordered (r, c, s), output row p's part is rows
//           p C S ... p C S + K - 1 of one taller matrix x_tile, whose row (h, c, s) is image row h of channel c,
//           shifted by s. So shared memory holds S shifted copies of the image instead of R S, and each output row's
//           GEMM operand is the same memory seen through a window that slides down: WMMA loads it in place.
// Layout    x (N,C,H,W), w (M,C,R,S), y (N,M,P,Q), fp32, C order. x_tile [row][PITCH] half, row = (h C + c) S + s;
//           w_tile [TILE_M][CHUNK_K] half, same order of k, zero in the padding.
// Mapping   a block -> ROWS output rows x TILES_Q TILE_Q columns of one image, TILE_M channels; a warp -> TILES of the
//           block's (row, TILE_Q columns) products, all accumulators in registers.
//           C, M, R, S and the tiles are compile-time constants; H, W and the batch are not. Layers whose tiles pass
//           shared memory are done in chunks of channels, filter rows and filter columns; the course's need one chunk.
// Roofline  bytes 4 (N C H W + M K + N M P Q); 0.31 and 0.23 ms at 4.3 TB/s for the course's layers, N = 10,000.
//           FLOPs on the tensor cores with padding (M to 8 or 16, Q to TILE_Q, K to 16): 0.08 + 0.11 TFLOP, below
//           0.3 ms in all. Shared memory: every product reads its operand anew, about 1 KB an image row and
//           16 steps: about 0.3 ms a layer.
// Gain      over m2/unroll_gemm: col and gemm_out never exist, 28 + 20 GB of traffic become 1.3 + 1.0.
// Limits    operands are rounded to FP16: values beyond 65,504 become infinite. An infinity or NaN in the input also
//           reaches outputs next to its own (zero weights in the padding times infinity).
// Hazards   x_tile's rows past the image must be finite, as zero weights meet them: they are filled with zeros.
//           Results are staged in the tiles' memory: a barrier stands between the last product and the first result.
// Source    WMMA: CUDA C++ Programming Guide, "Warp Matrix Functions" (pointers aligned to 32 B, PITCH to 16 halves).
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int STEP = 16;
constexpr int CHUNK_K = (CHUNK_C * CHUNK_R * CHUNK_S + STEP - 1) / STEP * STEP;
constexpr int ROW_STRIDE = CHUNK_C * CHUNK_S;  // rows of x_tile from one image row to the next
constexpr int LINES = ((ROWS - 1) * ROW_STRIDE + CHUNK_K + CHUNK_S - 1) / CHUNK_S;  // image rows x channels in x_tile
constexpr int COLUMNS = TILES_Q * TILE_Q;
constexpr int TILES = (ROWS * TILES_Q + WARPS - 1) / WARPS;  // products of a warp
constexpr bool RAGGED = ROWS * TILES_Q % WARPS != 0;         // the last round leaves warps without one

typedef wmma::fragment<wmma::matrix_a, TILE_M, TILE_Q, STEP, half, wmma::row_major> WFragment;
typedef wmma::fragment<wmma::matrix_b, TILE_M, TILE_Q, STEP, half, wmma::row_major> XFragment;
typedef wmma::fragment<wmma::accumulator, TILE_M, TILE_Q, STEP, float> Accumulator;

// Rows of x_tile for the chunk that starts at channel c0, filter row r0, filter column s0: a warp per image row and
// channel, which reads each input once, all loads of a line in flight together, and writes it to every shift's row.
__device__ void unroll(const float* __restrict__ x, half* x_tile, int h0, int q0, int c0, int s0, int H, int W) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr int LOADS = (COLUMNS + CHUNK_S - 1 + 31) / 32;  // of a lane
  for (int line = warp; line < LINES; line += WARPS) {
    const int h = h0 + line / CHUNK_C, c = c0 + line % CHUNK_C;
    const float* row = x + ((long long)c * H + h) * W + q0 + s0;
    const int end = h < H && c < C ? W - q0 - s0 : 0;  // columns from here on are outside the image
    float value[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++) value[i] = i * 32 + lane < end ? row[i * 32 + lane] : 0.0f;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const half rounded = __float2half(value[i]);
#pragma unroll
      for (int s = 0; s < CHUNK_S; s++) {
        const int q = i * 32 + lane - s;
        if (q >= 0 && q < COLUMNS) x_tile[(line * CHUNK_S + s) * PITCH + q] = rounded;
      }
    }
  }
}

// w_tile[m][k] for the same chunk; zero where the filter or the channels end.
__device__ void load_w(const float* __restrict__ w, half* w_tile, int m0, int c0, int r0, int s0) {
  for (int i = threadIdx.x; i < TILE_M * CHUNK_K; i += 32 * WARPS) {
    const int k = i % CHUNK_K, m = m0 + i / CHUNK_K;
    const int s = s0 + k % CHUNK_S, c = c0 + k / CHUNK_S % CHUNK_C, r = r0 + k / CHUNK_S / CHUNK_C;
    const bool inside = m < M && k < CHUNK_R * ROW_STRIDE && c < C && r < R && s < S;
    w_tile[i] = __float2half(inside ? w[(((long long)m * C + c) * R + r) * S + s] : 0.0f);
  }
}

// Tile t of this warp adds its products: the window of its output row, one step of k at a time.
__device__ void multiply(Accumulator (&acc)[TILES], const half* x_tile, const half* w_tile) {
  const int warp = threadIdx.x / 32;
#pragma unroll 4
  for (int k = 0; k < CHUNK_K; k += STEP) {
    WFragment w_fragment;
    wmma::load_matrix_sync(w_fragment, w_tile + k, CHUNK_K);
#pragma unroll
    for (int t = 0; t < TILES; t++) {
      const int tile = warp + t * WARPS;
      if (RAGGED && tile >= ROWS * TILES_Q) break;  // the same for the whole warp
      XFragment x_fragment;
      const int row = tile / TILES_Q * ROW_STRIDE + k, column = tile % TILES_Q * TILE_Q;
      wmma::load_matrix_sync(x_fragment, x_tile + row * PITCH + column, PITCH);
      wmma::mma_sync(acc[t], w_fragment, x_fragment, acc[t]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    conv_fused(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int H, int W) {
  extern __shared__ __align__(128) half shared[];
  half* const x_tile = shared;
  half* const w_tile = shared + LINES * CHUNK_S * PITCH;
  const int P = H - R + 1, Q = W - S + 1;
  const int blocks_q = (Q + COLUMNS - 1) / COLUMNS;
  const int p0 = blockIdx.x / blocks_q * ROWS, q0 = blockIdx.x % blocks_q * COLUMNS, m0 = blockIdx.y * TILE_M;
  x += (long long)blockIdx.z * C * H * W;
  y += (long long)blockIdx.z * M * P * Q;

  Accumulator acc[TILES];
#pragma unroll
  for (int t = 0; t < TILES; t++) wmma::fill_fragment(acc[t], 0.0f);
  for (int c0 = 0; c0 < C; c0 += CHUNK_C)
    for (int r0 = 0; r0 < R; r0 += CHUNK_R)
      for (int s0 = 0; s0 < S; s0 += CHUNK_S) {
        unroll(x, x_tile, p0 + r0, q0, c0, s0, H, W);
        load_w(w, w_tile, m0, c0, r0, s0);
        __syncthreads();  // the tiles are complete
        multiply(acc, x_tile, w_tile);
        __syncthreads();  // the tiles have been read
      }

  // permute: results leave through shared memory, where each lane finds its own channel and pixel
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float* const staged = reinterpret_cast<float*>(shared) + warp * TILE_M * TILE_Q;
#pragma unroll
  for (int t = 0; t < TILES; t++) {
    const int tile = warp + t * WARPS;
    if (RAGGED && tile >= ROWS * TILES_Q) break;
    const int p = p0 + tile / TILES_Q, q1 = q0 + tile % TILES_Q * TILE_Q;
    wmma::store_matrix_sync(staged, acc[t], TILE_Q, wmma::mem_row_major);
    __syncwarp();
    for (int i = lane; i < TILE_M * TILE_Q; i += 32) {
      const int m = m0 + i / TILE_Q, q = q1 + i % TILE_Q;
      if (m < M && p < P && q < Q) y[((long long)m * P + p) * Q + q] = staged[i];
    }
    __syncwarp();  // staged is free for the next tile
  }
}
