// layers/custom: unroll -> GEMM -> permute fused into one kernel on the tensor cores (WMMA).
//
// Idea      The unrolled matrix repeats itself. With its rows ordered (r, c, s), output row p's part is rows p STRIDE
//           ... of one taller matrix x_tile, whose row (h, c, s) is image row h of channel c, shifted by s. So shared
//           memory holds S shifted copies of the image instead of R S, each output row's operand is a window that
//           slides down over it, and what a warp has loaded of it for one output row serves the R - 1 next ones.
// Layout    x (N,C,H,W), w (M,C,R,S), y (N,M,P,Q), fp32, C order. x_tile [row][PITCH] half, row = (h C + c) SHIFTS + s
//           with S padded to SHIFTS, a multiple of 8: a window starts at a whole or a half step of 16. w_tile holds
//           the filters for both phases, [phase][TILE_M][STEPS 16] half, zero in the padding.
// Mapping   a block -> GROUPS GROUP_ROWS output rows x TILES_Q TILE_Q columns of one image, TILE_M channels; a warp ->
//           GROUP_ROWS rows of TILE_Q columns. It keeps the filters and all its accumulators in registers.
//           C, M, R, S and the tiles are compile-time constants; H, W and the batch are not. Layers whose tiles pass
//           shared memory are done in chunks of channels, filter rows and filter columns; layer 1 needs one chunk.
// Roofline  bytes 4 (N C H W + M K + N M P Q); 0.31 and 0.23 ms at 4.3 TB/s for the course's layers, N = 10,000.
//           FLOPs on the tensor cores with padding (M to 8 or 16, Q to TILE_Q, S to 8): 0.09 + 0.12 TFLOP, below
//           0.3 ms in all. Shared memory: layer 1 writes 8 copies of an image and reads them 2.5 times.
// Gain      over m3/stack_2: a seventh of the copies into shared memory, a third of the reads from it.
// Limits    operands are rounded to FP16: values beyond 65,504 become infinite. An infinity or NaN in the input also
//           reaches outputs next to its own (zero weights in the padding times infinity).
// Hazards   x_tile's rows past the image must be finite, as zero weights meet them: they are filled with zeros.
//           Results are staged in the tiles' memory: a barrier stands between the last product and the first result.
// Source    WMMA: CUDA C++ Programming Guide, "Warp Matrix Functions" (pointers aligned to 32 B, PITCH to 16 halves).
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int STEP = 16;  // of k in one product
constexpr int SHIFTS = (CHUNK_S + 7) / 8 * 8;
constexpr int STRIDE = CHUNK_C * SHIFTS;            // rows of x_tile from one image row to the next
constexpr int PHASES = STRIDE % STEP == 0 ? 1 : 2;  // an output row's window starts at a step, or in its middle too
constexpr int STEPS = (CHUNK_R * STRIDE + (PHASES - 1) * STEP / 2 + STEP - 1) / STEP;  // of a window
constexpr int GROUP_STEPS = (GROUP_ROWS - 1) * STRIDE / STEP + STEPS;                  // of a group's windows together
constexpr int WARPS = GROUPS * TILES_Q, COLUMNS = TILES_Q * TILE_Q;
constexpr int LINES = ((GROUPS - 1) * GROUP_ROWS * STRIDE + GROUP_STEPS * STEP + SHIFTS - 1) / SHIFTS;
static_assert(GROUP_ROWS * STRIDE % STEP == 0, "a group's first window starts at a whole step");

typedef wmma::fragment<wmma::matrix_a, TILE_M, TILE_Q, STEP, half, wmma::row_major> WFragment;
typedef wmma::fragment<wmma::matrix_b, TILE_M, TILE_Q, STEP, half, wmma::row_major> XFragment;
typedef wmma::fragment<wmma::accumulator, TILE_M, TILE_Q, STEP, float> Accumulator;

// Rows of x_tile for the chunk that starts at channel c0, image row h0, column q0: a warp per image row and channel,
// which reads each input once, all loads of a line in flight together, and writes it to every shift's row.
__device__ void unroll(const float* __restrict__ x, half* x_tile, int h0, int q0, int c0, int H, int W) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr int LOADS = (COLUMNS + SHIFTS - 1 + 31) / 32;  // of a lane
  for (int line = warp; line < LINES; line += WARPS) {
    const int h = h0 + line / CHUNK_C, c = c0 + line % CHUNK_C;
    const float* row = x + ((long long)c * H + h) * W + q0;
    const int end = h < H && c < C ? W - q0 : 0;  // columns from here on are outside the image
    float value[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++) value[i] = i * 32 + lane < end ? row[i * 32 + lane] : 0.0f;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const half rounded = __float2half(value[i]);
#pragma unroll
      for (int s = 0; s < SHIFTS; s++) {
        const int q = i * 32 + lane - s;
        if (q >= 0 && q < COLUMNS) x_tile[(line * SHIFTS + s) * PITCH + q] = rounded;
      }
    }
  }
}

// w_tile for the same chunk; zero where the filter or the channels end. Phase 1 is phase 0 moved by half a step.
__device__ void load_w(const float* __restrict__ w, half* w_tile, int m0, int c0, int r0, int s0) {
  for (int i = threadIdx.x; i < PHASES * TILE_M * STEPS * STEP; i += 32 * WARPS) {
    const int phase = i / (TILE_M * STEPS * STEP), m = m0 + i / (STEPS * STEP) % TILE_M;
    const int k = i % (STEPS * STEP) - phase * STEP / 2;
    const int s = k % SHIFTS, c = k / SHIFTS % CHUNK_C, r = k / STRIDE;
    const bool in_chunk = k >= 0 && s < CHUNK_S && r < CHUNK_R;
    const bool inside = in_chunk && m < M && c0 + c < C && r0 + r < R && s0 + s < S;
    w_tile[i] = __float2half(inside ? w[(((long long)m * C + c0 + c) * R + r0 + r) * S + s0 + s] : 0.0f);
  }
}

// Each step of the group's windows is loaded once and multiplied for every output row that it belongs to.
__device__ void multiply(Accumulator (&acc)[GROUP_ROWS], const half* x_tile, const half* w_tile) {
  WFragment w_fragment[PHASES][STEPS];
#pragma unroll
  for (int phase = 0; phase < PHASES; phase++)
#pragma unroll
    for (int k = 0; k < STEPS; k++)
      wmma::load_matrix_sync(w_fragment[phase][k], w_tile + phase * TILE_M * STEPS * STEP + k * STEP, STEPS * STEP);
#pragma unroll
  for (int f = 0; f < GROUP_STEPS; f++) {
    XFragment x_fragment;
    wmma::load_matrix_sync(x_fragment, x_tile + f * STEP * PITCH, PITCH);
#pragma unroll
    for (int p = 0; p < GROUP_ROWS; p++) {
      const int k = f - p * STRIDE / STEP, phase = p * STRIDE % STEP * 2 / STEP;
      if (k >= 0 && k < STEPS) wmma::mma_sync(acc[p], w_fragment[phase][k], x_fragment, acc[p]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    conv_fused(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int H, int W) {
  extern __shared__ __align__(128) half shared[];
  half* const x_tile = shared;
  half* const w_tile = shared + LINES * SHIFTS * PITCH;
  const int P = H - R + 1, Q = W - S + 1;
  const int blocks_q = (Q + COLUMNS - 1) / COLUMNS;
  const int p0 = blockIdx.x / blocks_q * GROUPS * GROUP_ROWS, q0 = blockIdx.x % blocks_q * COLUMNS;
  const int m0 = blockIdx.y * TILE_M;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int group_row = warp / TILES_Q * GROUP_ROWS, column = warp % TILES_Q * TILE_Q;  // this warp's, in the block
  x += (long long)blockIdx.z * C * H * W;
  y += (long long)blockIdx.z * M * P * Q;

  Accumulator acc[GROUP_ROWS];
#pragma unroll
  for (int p = 0; p < GROUP_ROWS; p++) wmma::fill_fragment(acc[p], 0.0f);
  for (int c0 = 0; c0 < C; c0 += CHUNK_C)
    for (int r0 = 0; r0 < R; r0 += CHUNK_R)
      for (int s0 = 0; s0 < S; s0 += CHUNK_S) {
        unroll(x, x_tile, p0 + r0, q0 + s0, c0, H, W);
        load_w(w, w_tile, m0, c0, r0, s0);
        __syncthreads();  // the tiles are complete
        multiply(acc, x_tile + group_row * STRIDE * PITCH + column, w_tile);
        __syncthreads();  // the tiles have been read
      }

  // permute: results leave through shared memory, where each lane finds its own channel and pixel
  float* const staged = reinterpret_cast<float*>(shared) + warp * TILE_M * TILE_Q;
#pragma unroll
  for (int row = 0; row < GROUP_ROWS; row++) {
    const int p = p0 + group_row + row;
    wmma::store_matrix_sync(staged, acc[row], TILE_Q, wmma::mem_row_major);
    __syncwarp();
    for (int i = lane; i < TILE_M * TILE_Q; i += 32) {
      const int m = m0 + i / TILE_Q, q = q0 + column + i % TILE_Q;
      if (m < M && p < P && q < Q) y[((long long)m * P + p) * Q + q] = staged[i];
    }
    __syncwarp();  // staged is free for the next row
  }
}
