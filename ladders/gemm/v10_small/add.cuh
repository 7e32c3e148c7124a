// Sums of parts of k: blocks store them in memory as whole tiles of floats, and a second kernel adds them.
#pragma once
#include "tiles.cuh"

namespace add {

// Stores the sums of a warp. `group` is entry * PARTS + part; a group has `lines` rows of `pitch` floats.
template <int groups>
__device__ __forceinline__ void keep(const float (&d)[groups][4], float* partial, int group, int lines, int pitch,
                                     int row, int column) {
  float* const to = partial + (long long)group * lines * pitch;
  sums::store<true>(d, sums::Matrix<float>{to, to, lines, pitch, pitch, 1.0f, 0.0f}, row, column);
}

struct alignas(4 * sizeof(Out)) Four {
  Out part[4];
};

// Each thread adds the sums of four columns of a row. c has `rows` rows in all entries, and m in each. A part has
// `size` floats, in rows of `pitch`.
__device__ __forceinline__ void up(const float* partial, const Out* c0, Out* c, int rows, int m, int n, int size,
                                   int pitch, int c_pitch, float alpha, float beta) {
  const int fours = (n + 3) / 4, at = blockIdx.x * ADDERS + threadIdx.x, row = at / fours, column = at % fours * 4;
  if (row >= rows) return;
  const int entry = row / m;
  const float* const first = partial + (long long)entry * PARTS * size + (long long)(row - entry * m) * pitch + column;
  const long long to = (long long)row * c_pitch + column;
  float sum[4] = {};
#pragma unroll
  for (int i = 0; i < PARTS; i++) {
    const float4 four = *reinterpret_cast<const float4*>(first + (long long)i * size);
    sum[0] += four.x, sum[1] += four.y, sum[2] += four.z, sum[3] += four.w;
  }
  Four four;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    sum[i] *= alpha;
    if (beta != 0.0f && column + i < n) sum[i] += beta * float(c0[to + i]);
    four.part[i] = Out(sum[i]);
  }
  if (column + 4 <= n && c_pitch % 4 == 0) {
    *reinterpret_cast<Four*>(c + to) = four;
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (column + i < n) c[to + i] = four.part[i];
  }
}

}  // namespace add

extern "C" __global__ void __launch_bounds__(ADDERS)
    add_parts(const float* partial, const Out* c0, Out* c, int rows, int m, int n, int size, int pitch, int c_pitch,
              float alpha, float beta) {
  ptx::grid_wait();
  add::up(partial, c0, c, rows, m, n, size, pitch, c_pitch, alpha, beta);
}
