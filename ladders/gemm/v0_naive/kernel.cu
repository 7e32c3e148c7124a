// gemm/v0_naive: c[row][col] = alpha * sum over l of a[row][l] b[l][col] + beta * c0[row][col], one thread per element.
//
// Idea      All elements are independent. Each thread computes one of them, from a row of a and a column of b.
// Layout    a (batch,m,k), b (batch,k,n), c0 and c (batch,m,n), row by row; halves, bfloat16 or floats, sums in float.
//           Each array has strides, as in NumPy. If an operand is transposed, its strides are exchanged, and a gap
//           after each row makes one of them larger. The code is the same.
// Mapping   threadIdx.x -> row, threadIdx.y -> column in a tile of TILE x TILE; blockIdx.x -> tile, down the columns of
//           tiles; blockIdx.z -> entry of the batch. A warp has 32 rows: its loads of a are k apart.
// Roofline  m = n = k = 4096: 137 GFLOP, 2.05 ms at 67 TFLOP/s (float); 201 MB, 0.047 ms at 4.3 TB/s. When a warp loads
//           32 elements of `a`, it touches 32 lines, which takes some 32 clocks for 32 FMAs: one FMA per clock and SM,
//           300 ms, 0.46 TFLOP/s.
// Gain      none: this is the first rung, with which the others are compared.
// Limits    a grid has at most 2^31 - 1 tiles. If a is transposed, its loads are coalesced, and only the stores of c
//           are not.
// Hazards   none: threads share nothing.
// Source    W. Hwu, D. Kirk, I. El Hajj, "Programming Massively Parallel Processors", 4th ed., chapter 3.
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
  const int tiles = (m + TILE - 1) / TILE;  // in a column of tiles
  const int row = blockIdx.x % tiles * TILE + threadIdx.x, col = blockIdx.x / tiles * TILE + threadIdx.y;
  if (row >= m || col >= n) return;
  a += blockIdx.z * a_entry + row * a_row;
  b += blockIdx.z * b_entry + col * b_col;

  float acc = 0.0f;
  for (int l = 0; l < k; l++) acc += float(a[l * a_col]) * float(b[l * b_row]);

  const long long at = (blockIdx.z * (long long)m + row) * c_row + col;
  c[at] = Out(beta == 0.0f ? alpha * acc : alpha * acc + beta * float(c0[at]));
}
