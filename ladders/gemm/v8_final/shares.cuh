// How blocks that share the k of a tile add up its sums.
#pragma once
#include "tiles.cuh"

// The blocks of a cluster that share k hand each other parts of their sums, and each one adds up its own part.
__device__ __forceinline__ void add_up(float (&d)[GROUPS][4], float (&sum)[PART][4], float4* slots,
                                       ptx::mbarrier* landed, int rank) {
#pragma unroll
  for (int block = 0; block < SPLIT; block++) {
    if (block == rank) {
#pragma unroll
      for (int i = 0; i < PART * 4; i++) sum[i / 4][i % 4] = d[block * PART + i / 4][i % 4];
      continue;
    }
    float4* const to = ptx::cluster_shared(slots + (rank - (rank > block)) * PART * SLOT + threadIdx.x, block);
    ptx::mbarrier* const there = ptx::cluster_shared(landed, block);
#pragma unroll
    for (int i = 0; i < PART; i++) {
      const float (&four)[4] = d[block * PART + i];
      ptx::store_async(&to[i * SLOT].x, make_float4(four[0], four[1], four[2], four[3]), there);
    }
  }
  ptx::mbarrier_wait(landed, 0);
#pragma unroll
  for (int other = 0; other < SPLIT - 1; other++)
#pragma unroll
    for (int i = 0; i < PART; i++) {
      const float4 four = slots[(other * PART + i) * SLOT + threadIdx.x];
      sum[i][0] += four.x, sum[i][1] += four.y, sum[i][2] += four.z, sum[i][3] += four.w;
    }
}

// Blocks that are no cluster store the sums of their parts of k in memory, and a second kernel adds them.
namespace parts {

// Sums of a part, as whole tiles of floats.
__device__ __forceinline__ void store(const float (&d)[GROUPS][4], float* partial, const Tiles& tiles, int row,
                                      int column, int entry) {
  const int lines = tiles.rows * SHARE * ROWS, pitch = tiles.columns * COLUMNS;
  float* const to = partial + (long long)entry * lines * pitch;
  sums::store<true>(d, sums::Matrix<float>{to, to, lines, pitch, pitch, 1.0f, 0.0f}, row, column);
}

struct alignas(4 * sizeof(Out)) Four {
  Out part[4];
};

// Four columns of a row for each thread. `rows` and m: of c in all entries, and in one of them. A part has `size`
// floats, in rows of `pitch`.
__device__ __forceinline__ void add(const float* partial, const Out* c0, Out* c, int rows, int m, int n, int size,
                                    int pitch, int c_pitch, float alpha, float beta) {
  const int fours = (n + 3) / 4, at = blockIdx.x * COPIERS + threadIdx.x, row = at / fours, column = at % fours * 4;
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

}  // namespace parts
