// gemm/v2_tiled: gemm/v1_coalesced with tiles of both operands in shared memory.
//
// Idea      The threads of a block need the same TILE rows of a and TILE columns of b. Together they load a piece of
//           each, one element per thread. Each element is then read TILE times from shared memory.
// Layout    a (batch,m,k), b (batch,k,n), c0 and c (batch,m,n), row by row; halves, bfloat16 or floats, sums in float.
//           Operands have strides, which are exchanged if an operand is transposed. a_tile [row][l], b_tile
//           [l][column], float, with zeros beyond the operands.
// Mapping   threadIdx.x -> column, threadIdx.y -> row in a tile of TILE x TILE; blockIdx.x -> tile, along the rows of
//           tiles; blockIdx.z -> entry of the batch. A warp reads one element of a_tile, or 32 neighbours of b_tile: no
//           bank conflict.
// Roofline  m = n = k = 4096: 137 GFLOP, 2.05 ms at 67 TFLOP/s (float); 201 MB, 0.047 ms at 4.3 TB/s; each operand is
//           loaded m / TILE = 128 times from L2, 17 GB, 1.7 ms at 10 TB/s. For 32 FMAs, a warp needs one load of b_tile
//           and a quarter of a load of a_tile (which loads four elements): at most 26 FMAs per clock and SM, 11 ms.
// Gain      over gemm/v1_coalesced: a factor of 2, to 20 ms. Global memory and the L1 cache are no longer the limit,
//           but there are still 1.25 loads per FMA, and the barriers.
// Limits    a grid has at most 2^31 - 1 tiles. Loads of a transposed operand are not coalesced. An SM holds two blocks
//           of 1,024 threads, so half of its threads wait at each barrier.
// Hazards   both __syncthreads: the first before the tiles are read, the second before they are overwritten. Threads
//           outside c also reach both: no early return.
// Source    W. Hwu, D. Kirk, I. El Hajj, "Programming Massively Parallel Processors", 4th ed., chapter 5: tiling.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

template <int type>  // the code of a type: 0 is float, 1 is half, 2 is bfloat16
using Element = std::conditional_t<type == 0, float, std::conditional_t<type == 1, half, __nv_bfloat16>>;
using In = Element<IN_TYPE>;
using Out = Element<OUT_TYPE>;

extern "C" __global__ void __launch_bounds__(TILE* TILE)
    gemm(const In* a, const In* b, const Out* c0, Out* c, int m, int n, int k, long long a_entry, long long a_row,
         long long a_col, long long b_entry, long long b_row, long long b_col, long long c_row, float alpha,
         float beta) {
  __shared__ __align__(16) float a_tile[TILE][TILE], b_tile[TILE][TILE];
  const int tiles = (n + TILE - 1) / TILE;  // in a row of tiles
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int row = blockIdx.x / tiles * TILE + ty, col = blockIdx.x % tiles * TILE + tx;
  a += blockIdx.z * a_entry + row * a_row;
  b += blockIdx.z * b_entry + col * b_col;

  float acc = 0.0f;
  for (int l0 = 0; l0 < k; l0 += TILE) {
    a_tile[ty][tx] = row < m && l0 + tx < k ? float(a[(l0 + tx) * a_col]) : 0.0f;
    b_tile[ty][tx] = col < n && l0 + ty < k ? float(b[(l0 + ty) * b_row]) : 0.0f;
    __syncthreads();  // the tiles are complete
#pragma unroll
    for (int l = 0; l < TILE; l++) acc += a_tile[ty][l] * b_tile[l][tx];
    __syncthreads();  // the tiles have been read
  }

  if (row >= m || col >= n) return;
  const long long at = (blockIdx.z * (long long)m + row) * c_row + col;
  c[at] = Out(beta == 0.0f ? alpha * acc : alpha * acc + beta * float(c0[at]));
}
