// gemm/v3_registers: gemm/v2_tiled with 8 x 8 elements of c in each thread's registers, and loads of four elements.
//
// Idea      A thread that computes 8 x 8 elements reads 8 + 8 values for 64 FMAs, whereas v2 reads two for one. It
//           loads four at a time from shared memory, and also from global memory if rows have a multiple of four
//           elements.
// Layout    a (batch,m,k), b (batch,k,n), c0 and c (batch,m,n), row by row; a and b also transposed; pitches from line
//           to line; halves, bfloat16 or floats, sums in float. a_tile [l][row], b_tile [l][column], float, also for
//           transposed operands, so that four rows or columns are one load. PITCH is a multiple of 32 plus four: when
//           stores transpose an operand, two of them use the same bank. Without the additional four, four of them
//           would.
// Mapping   block -> TILE x TILE of c, blockIdx.z -> entry of the batch. Thread -> rows ty to ty + 3 and ty + 64 to ty
//           + 67, and columns likewise, so that the 16 float4 of b_tile that half a warp reads are contiguous.
// Roofline  m = n = k = 4096: 137 GFLOP, 2.05 ms at 67 TFLOP/s (float); 201 MB, 0.047 ms at 4.3 TB/s; each operand is
//           loaded 32 times from L2, 4.3 GB, 0.4 ms at 10 TB/s. For each l, the 64 FMAs of a warp take 16 clocks of an
//           SM, and its four loads from shared memory six.
// Gain      over gemm/v2_tiled: a factor of 6. FMAs are the limit for the first time. 60 % of their peak are likely,
//           3.4 ms, 40 TFLOP/s, because two blocks per SM hide only a part of the wait between a load and the barrier.
// Limits    a grid has at most 2^31 - 1 tiles; small c fill few SMs. Lines whose length or pitch is not a multiple of
//           four are loaded one element at a time.
// Hazards   both __syncthreads, as in v2. A wide access needs an aligned address: rows, and so entries of the batch,
//           start at multiples of its size (A_WIDE, B_WIDE, C_WIDE). Its elements are either all inside or all outside.
// Source    V. Volkov, "Better performance at lower occupancy", GPU Technology Conference, 2010.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

template <int type>  // the code of a type: 0 is float, 1 is half, 2 is bfloat16
using Element = std::conditional_t<type == 0, float, std::conditional_t<type == 1, half, __nv_bfloat16>>;
using In = Element<IN_TYPE>;
using Out = Element<OUT_TYPE>;

constexpr int PITCH = TILE + 4, SIDE = 8;  // SIDE: rows and columns of a thread
static_assert(TILE == 128 && THREADS == 256, "16 x 16 threads with 8 x 8 elements each");

template <class T, int count>
struct alignas(count * sizeof(T)) Wide {  // the elements of one load or store
  T part[count];
};

// Loads tile[l][side] of an operand. A side is a row of a or a column of b, and there are `sides` of them. In memory,
// neighbours are adjacent either along k or along the sides.
template <bool along_k, int wide>
__device__ void load(float (&tile)[TILE_K][PITCH], const In* operand, int pitch, int side0, int sides, int l0, int k) {
  constexpr int length = along_k ? TILE_K : TILE;
#pragma unroll 4  // all eight pieces of one element would keep too many addresses in registers
  for (int i = 0; i < TILE * TILE_K / wide; i += THREADS) {
    const int piece = i + threadIdx.x, line = piece / (length / wide), at = piece % (length / wide) * wide;
    const int side = along_k ? line : at, l = along_k ? at : line;
    Wide<In, wide> value = {};
    if (side0 + side < sides && l0 + l < k) {
      const int far = along_k ? side0 + side : l0 + l, near = along_k ? l0 + l : side0 + side;
      value = *reinterpret_cast<const Wide<In, wide>*>(operand + (long long)far * pitch + near);
    }
#pragma unroll
    for (int j = 0; j < wide; j++) tile[along_k ? l + j : l][along_k ? side : side + j] = float(value.part[j]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm(const In* a, const In* b, const Out* c0, Out* c, int m, int n, int k, int a_pitch, int b_pitch, int c_pitch,
         float alpha, float beta) {
  __shared__ __align__(16) float a_tile[TILE_K][PITCH], b_tile[TILE_K][PITCH];
  const int tiles = (n + TILE - 1) / TILE;  // in a row of tiles
  const int row0 = blockIdx.x / tiles * TILE, col0 = blockIdx.x % tiles * TILE;
  const int ty = threadIdx.x / 16 * 4, tx = threadIdx.x % 16 * 4;
  a += blockIdx.z * (long long)(A_TURNED ? k : m) * a_pitch;
  b += blockIdx.z * (long long)(B_TURNED ? n : k) * b_pitch;

  float acc[SIDE][SIDE] = {};
  for (int l0 = 0; l0 < k; l0 += TILE_K) {
    load<!A_TURNED, A_WIDE>(a_tile, a, a_pitch, row0, m, l0, k);
    load<B_TURNED, B_WIDE>(b_tile, b, b_pitch, col0, n, l0, k);
    __syncthreads();  // the tiles are complete
#pragma unroll
    for (int l = 0; l < TILE_K; l++) {
      __align__(16) float left[SIDE], right[SIDE];
#pragma unroll
      for (int i = 0; i < SIDE; i += 4) {
        *reinterpret_cast<float4*>(&left[i]) = *reinterpret_cast<const float4*>(&a_tile[l][ty + 16 * i]);
        *reinterpret_cast<float4*>(&right[i]) = *reinterpret_cast<const float4*>(&b_tile[l][tx + 16 * i]);
      }
#pragma unroll
      for (int i = 0; i < SIDE; i++)
#pragma unroll
        for (int j = 0; j < SIDE; j++) acc[i][j] += left[i] * right[j];
    }
    __syncthreads();  // the tiles have been read
  }

  const long long corner = (blockIdx.z * (long long)m + row0 + ty) * c_pitch + col0 + tx;
  c0 += corner;
  c += corner;
#pragma unroll
  for (int i = 0; i < SIDE; i++)
#pragma unroll
    for (int j = 0; j < SIDE; j += C_WIDE) {
      const int row = i / 4 * 64 + i % 4, col = j / 4 * 64 + j % 4;
      if (row0 + ty + row >= m || col0 + tx + col >= n) continue;
      const long long at = (long long)row * c_pitch + col;
      Wide<Out, C_WIDE> value = {};
      if (beta != 0.0f) value = *reinterpret_cast<const Wide<Out, C_WIDE>*>(c0 + at);
#pragma unroll
      for (int q = 0; q < C_WIDE; q++)
        value.part[q] = Out(beta == 0.0f ? alpha * acc[i][j + q] : alpha * acc[i][j + q] + beta * float(value.part[q]));
      *reinterpret_cast<Wide<Out, C_WIDE>*>(c + at) = value;
    }
}
