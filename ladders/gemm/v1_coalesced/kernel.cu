// gemm/v1_coalesced: gemm/v0_naive with the threads of a warp along a row of c.
//
// Idea      Neighbouring threads take neighbouring columns: a warp's load of b and its store of c are 128 bytes in a
//           row, and all its threads want the same element of a. Two words of v0 change places.
// Layout    a (batch,m,k), b (batch,k,n), c0 and c (batch,m,n), row by row; halves, bfloat16 or floats, sums in float.
//           Each array has strides, as NumPy's have: in a transposed operand those of rows and columns change places,
//           after rows with gaps the next one lies farther away, and the code stays.
// Mapping   threadIdx.x -> column, threadIdx.y -> row in a tile of TILE x TILE; blockIdx.x -> tile, along the rows of
//           tiles; blockIdx.z -> entry of the batch.
// Roofline  m = n = k = 4096: 137 GFLOP, 2.05 ms at 67 TFLOP/s (float); 201 MB, 0.047 ms at 4.3 TB/s. Two loads for 32
//           FMAs of a warp: at one load a clock and SM 16 FMAs a clock, 18 ms at 1.8 GHz, 7.6 TFLOP/s.
// Gain      over gemm/v0_naive: 16 if the load units alone set the pace. Half of that is likely, as each load waits
//           for the L1 cache: seven FMAs a clock and SM, 40 ms.
// Limits    a grid of at most 2^31 - 1 tiles. With b transposed its loads lie k apart, and are v0's of a again. At
//           more than 32 registers a thread, an SM holds one block: half of the warps that it could have.
// Hazards   none: threads share nothing.
// Source    CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory".
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

template <int type>  // as in variant.py: of 32 bits, half, bfloat16
using Element = std::conditional_t<type == 0, float, std::conditional_t<type == 1, half, __nv_bfloat16>>;
using In = Element<IN_TYPE>;
using Out = Element<OUT_TYPE>;

extern "C" __global__ void __launch_bounds__(TILE* TILE)
    gemm(const In* a, const In* b, const Out* c0, Out* c, int m, int n, int k, long long a_entry, long long a_row,
         long long a_col, long long b_entry, long long b_row, long long b_col, long long c_row, float alpha,
         float beta) {
  const int tiles = (n + TILE - 1) / TILE;  // in a row of tiles
  const int row = blockIdx.x / tiles * TILE + threadIdx.y, col = blockIdx.x % tiles * TILE + threadIdx.x;
  if (row >= m || col >= n) return;
  a += blockIdx.z * a_entry + row * a_row;
  b += blockIdx.z * b_entry + col * b_col;

  float acc = 0.0f;
  for (int l = 0; l < k; l++) acc += float(a[l * a_col]) * float(b[l * b_row]);

  const long long at = (blockIdx.z * (long long)m + row) * c_row + col;
  c[at] = Out(beta == 0.0f ? alpha * acc : alpha * acc + beta * float(c0[at]));
}
