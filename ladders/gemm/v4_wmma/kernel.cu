// gemm/v4_wmma: gemm/v3_registers with the products of a warp on the tensor cores.
//
// Idea      A warp multiplies 16 x 16 by 16 x 16 halves in one step and adds to sums in float: 4,096 FMAs, for which 32
//           threads would need 128 instructions. The 8 x 8 registers of a thread become 4 x 2 fragments of a warp.
// Layout    a (batch,m,k), b (batch,k,n), c0 and c (batch,m,n), row by row; a and b also transposed; pitches from
//           line to line; a and b in half, c0 and c half, bfloat16 or float, sums in float. Tiles in shared memory
//           have the order of their operands, half: the layout of a fragment, row_major or col_major, specifies
//           how it is read. PAD, 16 bytes, puts the eight 16-byte pieces that are read at once into different
//           banks.
// Mapping   block -> TILE x TILE of c, blockIdx.z -> entry of the batch. Warp -> 64 rows and 32 columns of it. CUDA
//           does not specify which thread has which sum, so sums pass through a patch of 16 x 16 floats in shared
//           memory.
// Roofline  m = n = k = 4096: 137 GFLOP, 0.14 ms at 990 TFLOP/s; 101 MB, 0.023 ms at 4.3 TB/s; each operand is loaded
//           32 times from L2, 2.1 GB, 0.2 ms at 10 TB/s. For 16 values of k, a warp reads 3 KB from shared memory for
//           32,768 FMAs: 1,365 per SM and clock at 128 bytes, two thirds of the rate of the tensor cores.
// Gain      over gemm/v3_registers: a factor of 7 on the same halves, to 0.5 ms, 270 TFLOP/s. A block loads, waits,
//           multiplies, and waits again; the other block of its SM fills half of the gaps.
// Limits    halves only. A grid has at most 2^31 - 1 tiles. Lines whose length or pitch is not a multiple of eight are
//           loaded one element at a time, which is slower than the products.
// Hazards   both __syncthreads, as in v2. Pointers of fragments are aligned to 32 bytes, pitches to 16. Each warp has
//           its own patch: __syncwarp is sufficient between its stores, its loads and the next stores.
// Source    CUDA C++ Programming Guide, "Warp Matrix Functions".
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <type_traits>

using namespace nvcuda;

template <int type>  // the code of a type: 0 is float, 1 is half, 2 is bfloat16
using Element = std::conditional_t<type == 0, float, std::conditional_t<type == 1, half, __nv_bfloat16>>;
using Out = Element<OUT_TYPE>;

constexpr int SIDE = 16, PAD = 8;                  // of a product, and halves after each line of a tile
constexpr int ROWS = 64 / SIDE, COLS = 32 / SIDE;  // products of a warp
constexpr int A_LINES = A_TURNED ? TILE_K : TILE, A_LENGTH = A_TURNED ? TILE : TILE_K, A_PITCH = A_LENGTH + PAD;
constexpr int B_LINES = B_TURNED ? TILE : TILE_K, B_LENGTH = B_TURNED ? TILE_K : TILE, B_PITCH = B_LENGTH + PAD;
constexpr int PATCH_PITCH = SIDE + 4;  // floats
static_assert(TILE == 128 && THREADS == 256, "2 x 4 warps with 64 x 32 elements each");

typedef wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, half,
                       std::conditional_t<A_TURNED, wmma::col_major, wmma::row_major>>
    FragmentA;
typedef wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, half,
                       std::conditional_t<B_TURNED, wmma::col_major, wmma::row_major>>
    FragmentB;

template <int count>
struct alignas(count * sizeof(half)) Wide {  // the elements of one load
  half part[count];
};

// Loads a part of an operand, which has `lines` lines of `length` halves in memory, and keeps the order.
template <int wide, int tile_lines, int tile_length>
__device__ void load(half (&tile)[tile_lines][tile_length], const half* operand, int pitch, int line0, int lines,
                     int at0, int length) {
  constexpr int pieces = (tile_length - PAD) / wide;  // of a line
#pragma unroll 4
  for (int i = 0; i < tile_lines * pieces; i += THREADS) {
    const int line = (i + threadIdx.x) / pieces, at = (i + threadIdx.x) % pieces * wide;
    Wide<wide> value = {};
    if (line0 + line < lines && at0 + at < length)
      value = *reinterpret_cast<const Wide<wide>*>(operand + (long long)(line0 + line) * pitch + at0 + at);
    *reinterpret_cast<Wide<wide>*>(&tile[line][at]) = value;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm(const half* a, const half* b, const Out* c0, Out* c, int m, int n, int k, int a_pitch, int b_pitch,
         int c_pitch, float alpha, float beta) {
  __shared__ __align__(128) half a_tile[A_LINES][A_PITCH], b_tile[B_LINES][B_PITCH];
  __shared__ __align__(128) float patches[THREADS / 32][SIDE][PATCH_PITCH];
  const int tiles = (n + TILE - 1) / TILE;  // in a row of tiles
  const int row0 = blockIdx.x / tiles * TILE, col0 = blockIdx.x % tiles * TILE;
  const int warp = threadIdx.x / 32, warp_row = warp / 4 * 64, warp_col = warp % 4 * 32;
  a += blockIdx.z * (long long)(A_TURNED ? k : m) * a_pitch;
  b += blockIdx.z * (long long)(B_TURNED ? n : k) * b_pitch;

  wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, float> acc[ROWS][COLS];
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLS; j++) wmma::fill_fragment(acc[i][j], 0.0f);
  for (int l0 = 0; l0 < k; l0 += TILE_K) {
    if (A_TURNED)
      load<A_WIDE>(a_tile, a, a_pitch, l0, k, row0, m);
    else
      load<A_WIDE>(a_tile, a, a_pitch, row0, m, l0, k);
    if (B_TURNED)
      load<B_WIDE>(b_tile, b, b_pitch, col0, n, l0, k);
    else
      load<B_WIDE>(b_tile, b, b_pitch, l0, k, col0, n);
    __syncthreads();  // the tiles are complete
#pragma unroll
    for (int l = 0; l < TILE_K; l += SIDE) {
      FragmentB right[COLS];
      for (int j = 0; j < COLS; j++) {
        const int col = warp_col + j * SIDE;
        wmma::load_matrix_sync(right[j], B_TURNED ? &b_tile[col][l] : &b_tile[l][col], B_PITCH);
      }
      for (int i = 0; i < ROWS; i++) {
        const int row = warp_row + i * SIDE;
        FragmentA left;
        wmma::load_matrix_sync(left, A_TURNED ? &a_tile[l][row] : &a_tile[row][l], A_PITCH);
        for (int j = 0; j < COLS; j++) wmma::mma_sync(acc[i][j], left, right[j], acc[i][j]);
      }
    }
    __syncthreads();  // the tiles have been read
  }

  float (&patch)[SIDE][PATCH_PITCH] = patches[warp];
#pragma unroll  // registers cannot be indexed
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int j = 0; j < COLS; j++) {
      wmma::store_matrix_sync(&patch[0][0], acc[i][j], PATCH_PITCH, wmma::mem_row_major);
      __syncwarp();  // the patch is complete
      for (int e = threadIdx.x % 32; e < SIDE * SIDE; e += 32) {
        const int row = row0 + warp_row + i * SIDE + e / SIDE, col = col0 + warp_col + j * SIDE + e % SIDE;
        if (row >= m || col >= n) continue;
        const long long at = (blockIdx.z * (long long)m + row) * c_pitch + col;
        const float sum = alpha * patch[e / SIDE][e % SIDE];
        c[at] = Out(beta == 0.0f ? sum : sum + beta * float(c0[at]));
      }
      __syncwarp();  // the patch has been read
    }
}
