// gemm/v5_mma_async: gemm/v4_wmma with copies that run ahead of the products.
//
// Idea      Shared memory holds STAGES tiles of each operand. While one is multiplied, cp.async loads the next two
//           without registers, with one barrier per tile. With mma.sync and ldmatrix, the thread that has each sum is
//           known, so sums are stored directly to c.
// Layout    a (batch,m,k), b (batch,k,n), c0 and c (batch,m,n), row by row; a and b also transposed; pitches from line
//           to line; a and b in half or bfloat16, c0 and c half, bfloat16 or float, sums in float. Tiles have the order
//           of their operands, in lines of chunks of eight elements. Chunk i of a line is at place i ^ line % 8
//           (swizzle). An ldmatrix reads one chunk from each of eight lines. Without the swizzle, all eight would be in
//           the same four banks; with it, they are spread over all 32. No padding is needed.
// Mapping   block -> TILE x TILE of c, blockIdx.z -> entry of the batch; four warps, each 64 x 64 of it: 4 x 8 products
//           of 16 x 8 x 16. A thread copies every THREADS-th piece of a tile.
// Roofline  m = n = k = 4096: 137 GFLOP, 0.14 ms at 990 TFLOP/s, and 0.23 ms at the 600 that mma.sync reaches on an
//           H200 in a loop without other instructions; 101 MB, 0.023 ms at 4.3 TB/s; each operand is loaded 32 times
//           from L2, 2.1 GB, 0.2 ms at 10 TB/s. For 16 values of k, a warp reads 4 KB for 65,536 FMAs: shared memory
//           allows the peak.
// Gain      over gemm/v4_wmma: a factor of 1.7, to 0.3 ms, 450 TFLOP/s. Copies and products no longer take turns, and
//           warps of 64 x 64 read a third less from shared memory. L2 and mma.sync are then both near their limits, and
//           only wgmma is faster.
// Limits    elements of 16 bits, sm_80, 96 KB of shared memory. A grid has at most 2^31 - 1 tiles. cp.async copies 4, 8
//           or 16 bytes: lines of an odd length or pitch are loaded one element at a time, without running ahead.
// Hazards   the __syncthreads of a tile. Before it, each thread waits for its own copies of that tile. After it, all
//           copies have therefore arrived, and all threads have read the previous tile, which the next copies
//           overwrite. Each thread commits a group for each tile, even an empty one, so that the wait can count tiles.
//           ldmatrix needs all lanes of a warp.
// Source    PTX ISA, "Matrix Fragments for mma.m16n8k16", "ldmatrix", "cp.async".
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>

#include <type_traits>

template <int type>  // the code of a type: 0 is float, 1 is half, 2 is bfloat16
using Element = std::conditional_t<type == 0, float, std::conditional_t<type == 1, half, __nv_bfloat16>>;
using In = Element<IN_TYPE>;
using Out = Element<OUT_TYPE>;

constexpr int A_LENGTH = A_TURNED ? TILE : TILE_K, B_LENGTH = B_TURNED ? TILE_K : TILE;  // of a line of a tile
constexpr int SIDE = 64, ROWS = SIDE / 16, COLS = SIDE / 8;  // of a warp: elements, products
constexpr int ELEMENTS = TILE * TILE_K;                      // of a tile
static_assert(TILE == 128 && TILE_K == 64 && THREADS == 128, "2 x 2 warps; lines have eight chunks at least");

template <class T, int count>
struct alignas(count * sizeof(T)) Wide {  // the elements of one load or store
  T part[count];
};

// The position of element `at` of a line of a tile.
template <int length>
__device__ __forceinline__ int place(int line, int at) {
  return line * length + ((at / 8) ^ (line % 8)) * 8 + at % 8;
}

// Starts the copy of a part of an operand, which has `lines` lines of `length` elements in memory. Beyond them, it
// writes zeros.
template <int tile_length, int wide>
__device__ __forceinline__ void copy(In* tile, const In* operand, int pitch, int line0, int lines, int at0,
                                     int length) {
  constexpr int pieces = tile_length / wide;  // of a line
#pragma unroll 8
  for (int i = 0; i < ELEMENTS / wide; i += THREADS) {
    const int line = (i + threadIdx.x) / pieces, at = (i + threadIdx.x) % pieces * wide;
    const bool inside = line0 + line < lines && at0 + at < length;
    const In* from = inside ? operand + (long long)(line0 + line) * pitch + at0 + at : operand;
    In* to = tile + place<tile_length>(line, at);
    if constexpr (wide > 1)
      ptx::cp_async<2 * wide>(to, from, inside ? 2 * wide : 0);
    else
      *to = inside ? *from : In(0.0f);
  }
}

// Loads 16 x 16 elements from line `line0` and place `at0` on, as four matrices of 8 x 8. Matrix 1 follows matrix 0
// along the lines (`lines_first`) or within the line, and matrix 2 follows it in the other direction. With `turned`,
// each matrix is transposed.
template <int length, bool turned, bool lines_first>
__device__ __forceinline__ void matrices(unsigned (&d)[4], const In* tile, int line0, int at0) {
  const int lane = threadIdx.x % 32, first = lane / 8 % 2 * 8, second = lane / 16 * 8;
  const int line = line0 + lane % 8 + (lines_first ? first : second), at = at0 + (lines_first ? second : first);
  if constexpr (turned)
    ptx::ldmatrix_trans(d, tile + place<length>(line, at));
  else
    ptx::ldmatrix(d, tile + place<length>(line, at));
}

// Adds the product of 16 x 16 and 16 x 8 elements.
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  if constexpr (std::is_same_v<In, half>)
    ptx::mma_m16n8k16(d, a, b);
  else
    ptx::mma_m16n8k16_bf16(d, a, b);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm(const In* a, const In* b, const Out* c0, Out* c, int m, int n, int k, int a_pitch, int b_pitch, int c_pitch,
         float alpha, float beta) {
  extern __shared__ __align__(128) In shared[];  // STAGES of a tile of a and one of b
  const int tiles = (n + TILE - 1) / TILE;       // in a row of tiles
  const int row0 = blockIdx.x / tiles * TILE, col0 = blockIdx.x % tiles * TILE;
  const int warp = threadIdx.x / 32, warp_row = warp / 2 * SIDE, warp_col = warp % 2 * SIDE;
  a += blockIdx.z * (long long)(A_TURNED ? k : m) * a_pitch;
  b += blockIdx.z * (long long)(B_TURNED ? n : k) * b_pitch;

  auto fetch = [&](int l0, int stage) {
    In *a_tile = shared + stage * 2 * ELEMENTS, *b_tile = a_tile + ELEMENTS;
    if (l0 < k) {
      if constexpr (A_TURNED)
        copy<A_LENGTH, A_WIDE>(a_tile, a, a_pitch, l0, k, row0, m);
      else
        copy<A_LENGTH, A_WIDE>(a_tile, a, a_pitch, row0, m, l0, k);
      if constexpr (B_TURNED)
        copy<B_LENGTH, B_WIDE>(b_tile, b, b_pitch, col0, n, l0, k);
      else
        copy<B_LENGTH, B_WIDE>(b_tile, b, b_pitch, l0, k, col0, n);
    }
    ptx::cp_async_commit();
  };

  float acc[ROWS][COLS][4] = {};
  for (int stage = 0; stage < STAGES - 1; stage++) fetch(stage * TILE_K, stage);
  for (int l0 = 0, stage = 0; l0 < k; l0 += TILE_K, stage = (stage + 1) % STAGES) {
    ptx::cp_async_wait<STAGES - 2>();
    __syncthreads();  // this tile has arrived, and the previous one has been read: it may be overwritten
    fetch(l0 + (STAGES - 1) * TILE_K, (stage + STAGES - 1) % STAGES);
    const In *a_tile = shared + stage * 2 * ELEMENTS, *b_tile = a_tile + ELEMENTS;
#pragma unroll
    for (int l = 0; l < TILE_K; l += 16) {
      unsigned left[ROWS][4];
#pragma unroll
      for (int i = 0; i < ROWS; i++) {
        const int row = warp_row + i * 16;
        matrices<A_LENGTH, A_TURNED, !A_TURNED>(left[i], a_tile, A_TURNED ? l : row, A_TURNED ? row : l);
      }
#pragma unroll
      for (int j = 0; j < COLS; j += 2) {
        const int col = warp_col + j * 8;
        unsigned right[4];  // k and k + 8 of eight columns, then of the next eight
        matrices<B_LENGTH, !B_TURNED, !B_TURNED>(right, b_tile, B_TURNED ? col : l, B_TURNED ? l : col);
        const unsigned low[2] = {right[0], right[1]}, high[2] = {right[2], right[3]};
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
          multiply(acc[i][j], left[i], low);
          multiply(acc[i][j + 1], left[i], high);
        }
      }
    }
  }

  // the thread's part of each product: two columns in row g and two in row g + 8
  const int row1 = row0 + warp_row + threadIdx.x % 32 / 4, col1 = col0 + warp_col + threadIdx.x % 4 * 2;
  const long long corner = (blockIdx.z * (long long)m + row1) * c_pitch + col1;
  c0 += corner;
  c += corner;
#pragma unroll
  for (int i = 0; i < 2 * ROWS; i++)
#pragma unroll
    for (int j = 0; j < 2 * COLS; j += C_WIDE) {
      const int row = 8 * i, col = j / 2 * 8 + j % 2;
      if (row1 + row >= m || col1 + col >= n) continue;
      const long long at = (long long)row * c_pitch + col;
      Wide<Out, C_WIDE> value = {};
      if (beta != 0.0f) value = *reinterpret_cast<const Wide<Out, C_WIDE>*>(c0 + at);
#pragma unroll
      for (int q = 0; q < C_WIDE; q++) {
        const float sum = alpha * acc[i / 2][j / 2][i % 2 * 2 + j % 2 + q];
        value.part[q] = Out(beta == 0.0f ? sum : sum + beta * float(value.part[q]));
      }
      *reinterpret_cast<Wide<Out, C_WIDE>*>(c + at) = value;
    }
}
