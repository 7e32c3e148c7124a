// m3/sliding_window: unroll -> GEMM -> permute fused into one kernel on the tensor cores (WMMA).
//
// Idea      The unrolled matrix repeats itself. Let row (h, c, s) of a matrix x_tile be image row h of channel c,
//           shifted by s. If the filters have the order (r, c, s), the operand of output row p is a window of x_tile
//           that starts at row p STRIDE. Shared memory therefore holds S shifted copies of the image instead of R S. A
//           warp uses the values that it has loaded for one output row also for the next R - 1.
// Layout    x (N,C,H,W), w (M,C,R,S), y (N,M,P,Q), fp32, C order. x_tile [row][PITCH] half, row = (h C + c) SHIFTS + s
//           with S padded to SHIFTS, a multiple of 8: a window starts at the beginning or in the middle of a step of
//           16. w_tile holds the filters for both phases, [phase][TILE_M][STEPS 16] half, zero in the padding.
// Mapping   a block -> ROWS output rows x TILES_Q TILE_Q columns of an image, TILE_M channels; a warp -> TILE_Q of the
//           columns. It keeps the filters and all its accumulators in registers, and continues with the same rows of
//           image n + gridDim.z: the filters are loaded once for several images.
//           C, M, R, S and the tiles are compile-time constants; H, W and the batch are not. Layers whose tiles exceed
//           shared memory or registers are processed in chunks of channels, filter rows and filter columns. Each of the
//           course's layers is one chunk.
// Roofline  bytes 4 (N C H W + M K + N M P Q); 0.31 and 0.23 ms at 4.3 TB/s for the course's layers, N = 10,000. FLOPs
//           on the tensor cores with padding (M to 8 or 16, Q to TILE_Q, S to 8): 0.08 + 0.12 TFLOP, less than 0.3 ms
//           in total. Shared memory is the limit. Each pair of inputs is stored there 8 times, once per shift, and
//           those of halo rows again by the next block. Each result also passes through it.
// Gain      over m3/stack_2: 14 copies of each input into shared memory instead of 49, two sevenths, or about a third
//           with Q padded to whole tiles. Shared memory is read about a quarter as often, and filters are read once for
//           8 images.
// Limits    operands are rounded to FP16: values beyond 65,504 become infinite. An infinity or NaN in the input also
//           reaches outputs next to its own (zero weights in the padding times infinity).
// Hazards   the rows of x_tile beyond the image must be finite, because they are multiplied by zero weights: they are
//           filled with zeros. Results are staged in the memory of the tiles: a barrier separates the last product from
//           the first result, and another one comes before the tiles of the next image.
// Source    WMMA: CUDA C++ Programming Guide, "Warp Matrix Functions" (pointers aligned to 32 B, PITCH to 16 halves).
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int STEP = 16;  // of k in one product
constexpr int SHIFTS = (CHUNK_S + 7) / 8 * 8;
constexpr int STRIDE = CHUNK_C * SHIFTS;            // rows of x_tile from one image row to the next
constexpr int PHASES = STRIDE % STEP == 0 ? 1 : 2;  // 2 if some windows start in the middle of a step
constexpr int STEPS = (CHUNK_R * STRIDE + (PHASES - 1) * STEP / 2 + STEP - 1) / STEP;  // of a window
constexpr int X_STEPS = (ROWS - 1) * STRIDE / STEP + STEPS;                            // of all windows together
constexpr int WARPS = TILES_Q, COLUMNS = TILES_Q * TILE_Q;
constexpr int LINES = (X_STEPS * STEP + SHIFTS - 1) / SHIFTS;  // image rows x channels in x_tile

typedef wmma::fragment<wmma::matrix_a, TILE_M, TILE_Q, STEP, half, wmma::row_major> WFragment;
typedef wmma::fragment<wmma::matrix_b, TILE_M, TILE_Q, STEP, half, wmma::row_major> XFragment;
typedef wmma::fragment<wmma::accumulator, TILE_M, TILE_Q, STEP, float> Accumulator;

// Fills x_tile for the chunk that starts at channel c0, image row h0, column q0. A warp has an image row of a channel,
// and a lane a pair of columns. Each input is read once, and all loads of a row are in flight together. The lane writes
// its pair to the rows of all even shifts, and the pair that starts a column later to those of all odd shifts.
__device__ void unroll(const float* __restrict__ x, half* x_tile, int h0, int q0, int c0, int H, int W) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr unsigned PAIRS = (COLUMNS + SHIFTS + 63) / 64;  // of a lane
  for (unsigned line = warp; line < LINES; line += WARPS) {
    const int h = h0 + line / CHUNK_C, c = c0 + line % CHUNK_C;
    const float* row = x + ((long long)c * H + h) * W + q0;
    const int end = h < H && c < C ? W - q0 : 0;  // columns from here on are outside the image
    float value[PAIRS][3];
#pragma unroll
    for (unsigned i = 0; i < PAIRS; i++)
#pragma unroll
      for (unsigned k = 0; k < 3; k++) {
        const int column = 64 * i + 2 * lane + k;
        value[i][k] = column < end ? row[column] : 0.0f;
      }
    half* const tile = x_tile + line * SHIFTS * PITCH;
#pragma unroll
    for (unsigned i = 0; i < PAIRS; i++) {
      const half2 even = __floats2half2_rn(value[i][0], value[i][1]);
      const half2 odd = __floats2half2_rn(value[i][1], value[i][2]);
#pragma unroll
      for (int s = 0; s < SHIFTS; s++) {
        const int q = int(64 * i + 2 * lane) - s / 2 * 2;  // of the pair in this shift's row
        if (q >= 0 && q < COLUMNS) *reinterpret_cast<half2*>(tile + s * PITCH + q) = s % 2 ? odd : even;
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

// The filters of a chunk, in registers.
__device__ void load_fragments(WFragment (&w_fragment)[PHASES][STEPS], const half* w_tile) {
#pragma unroll
  for (int phase = 0; phase < PHASES; phase++)
#pragma unroll
    for (int k = 0; k < STEPS; k++)
      wmma::load_matrix_sync(w_fragment[phase][k], w_tile + phase * TILE_M * STEPS * STEP + k * STEP, STEPS * STEP);
}

// Each step of the windows is loaded once and multiplied for every output row that it belongs to.
__device__ void multiply(Accumulator (&acc)[ROWS], const WFragment (&w_fragment)[PHASES][STEPS], const half* x_tile) {
#pragma unroll
  for (int f = 0; f < X_STEPS; f++) {
    XFragment x_fragment;
    wmma::load_matrix_sync(x_fragment, x_tile + f * STEP * PITCH, PITCH);
#pragma unroll
    for (int p = 0; p < ROWS; p++) {
      const int k = f - p * STRIDE / STEP, phase = p * STRIDE % STEP * 2 / STEP;
      if (k >= 0 && k < STEPS) wmma::mma_sync(acc[p], w_fragment[phase][k], x_fragment, acc[p]);
    }
  }
}

// Permute: a row of results passes through shared memory, from where each lane stores a pixel. y points at the row's
// column 0 of channel 0.
__device__ void store(float* __restrict__ y, float* staged, const Accumulator& acc, int m0, int q, int Q, int PQ) {
  const int lane = threadIdx.x % 32;
  constexpr int AT_ONCE = 32 / TILE_Q, USED_M = M < TILE_M ? M : TILE_M;  // channels
  wmma::store_matrix_sync(staged, acc, TILE_Q, wmma::mem_row_major);
  __syncwarp();
  float* out = y + (long long)(m0 + lane / TILE_Q) * PQ + q;
#pragma unroll
  for (int i = 0; i < (USED_M + AT_ONCE - 1) / AT_ONCE; i++, out += AT_ONCE * (long long)PQ) {
    const int m = i * AT_ONCE + lane / TILE_Q;
    if (q < Q && m < USED_M && (M % TILE_M == 0 || m0 + m < M)) *out = staged[i * 32 + lane];
  }
  __syncwarp();  // the next row may overwrite staged
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    conv_fused(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int N, int H, int W) {
  extern __shared__ __align__(128) half shared[];
  half* const x_tile = shared;
  half* const w_tile = shared + LINES * SHIFTS * PITCH;
  const int P = H - R + 1, Q = W - S + 1;
  const int blocks_q = (Q + COLUMNS - 1) / COLUMNS;
  const int p0 = blockIdx.x / blocks_q * ROWS, q0 = blockIdx.x % blocks_q * COLUMNS;
  const int m0 = blockIdx.y * TILE_M;
  const int warp = threadIdx.x / 32;
  const int column = warp * TILE_Q;  // this warp's first, in the block
  float* const staged = reinterpret_cast<float*>(shared) + warp * TILE_M * TILE_Q;
  constexpr bool ONE_CHUNK = CHUNK_C == C && CHUNK_R == R && CHUNK_S == S;

  WFragment w_fragment[PHASES][STEPS];
  bool loaded = false;  // the filters of a layer that is one chunk stay in registers
  for (int n = blockIdx.z; n < N; n += gridDim.z) {
    const float* const image = x + (long long)n * C * H * W;
    Accumulator acc[ROWS];
#pragma unroll
    for (int p = 0; p < ROWS; p++) wmma::fill_fragment(acc[p], 0.0f);
    for (int c0 = 0; c0 < C; c0 += CHUNK_C)
      for (int r0 = 0; r0 < R; r0 += CHUNK_R)
        for (int s0 = 0; s0 < S; s0 += CHUNK_S) {
          const bool load = !ONE_CHUNK || !loaded;
          unroll(image, x_tile, p0 + r0, q0 + s0, c0, H, W);
          if (load) load_w(w, w_tile, m0, c0, r0, s0);
          __syncthreads();  // the tiles are complete
          if (load) load_fragments(w_fragment, w_tile);
          loaded = true;
          multiply(acc, w_fragment, x_tile + column);
          __syncthreads();  // the tiles have been read
        }
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
      const int p = p0 + row;
      if (p >= P) break;  // the same for the whole warp
      float* const out = y + (long long)n * M * P * Q + (long long)p * Q;
      store(out, staged, acc[row], m0, q0 + column + threadIdx.x % TILE_Q, Q, P * Q);
    }
    __syncthreads();  // the results have been read: x_tile may overwrite them
  }
}
