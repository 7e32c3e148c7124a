// gemm/v1_coalesced: gemm/v0_naive with the threads of a warp along a row of c.
//
// Idea      Neighbouring threads compute neighbouring columns: a warp loads 128 contiguous bytes of b, stores 128
//           contiguous bytes of c, and all its threads use the same element of a. Two words of v0 are exchanged.
// Layout    a (batch,m,k), b (batch,k,n), c0 and c (batch,m,n), row by row; halves, bfloat16 or floats, sums in float.
//           Each array has strides, as in NumPy. If an operand is transposed, its strides are exchanged, and a gap
//           after each row makes one of them larger. The code is the same.
// Mapping   threadIdx.x -> column, threadIdx.y -> row in a tile of TILE x TILE; blockIdx.x -> tile, along the rows of
//           tiles; blockIdx.z -> entry of the batch.
// Roofline  m = n = k = 4096: 137 GFLOP, 2.05 ms at 67 TFLOP/s (float); 201 MB, 0.047 ms at 4.3 TB/s. A warp needs two
//           loads for 32 FMAs. At one load of a warp per clock and SM, these are 16 FMAs per clock, which take 18 ms at
//           1.8 GHz, 7.6 TFLOP/s.
// Gain      over gemm/v0_naive: a factor of 16 if the load units are the only limit. Half of that is likely, seven FMAs
//           per clock and SM, 40 ms, because each load waits for the L1 cache.
// Limits    a grid has at most 2^31 - 1 tiles. If b is transposed, its loads are k apart, like those of a in v0. If a
//           thread uses more than 32 registers, an SM holds only one block, half of the warps that it could hold.
// Hazards   none: threads share nothing.
// Source    CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory".
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
