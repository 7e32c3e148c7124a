// Convolutions of up to four channels as products on tensor cores, without unrolling: #include <mini_dnn/quads.cuh>
//
// A quad is four values that lie together: a pixel of 4 channels, 1 x 2 pixels of 2, or 2 x 2 pixels of 1. With quads
// for pixels (space to depth) all of these are one convolution: of 4 values a quad, to 16 sums a quad, which are its
// pixels for each output channel. Filter row r of it is a matrix A (16, 4 per quad) that stays in registers; B is the
// image: column n of a product takes the quads from n's own on, and mma.m16n8k16 four of them a step. Slots 2t, 2t + 1,
// 2t + 8, 2t + 9 of k are quad t, so that lane 4 g + t needs quad t of column g: one load of 8 bytes.
#pragma once
#include <mini_dnn/ptx.cuh>

namespace quads {

constexpr int lanes = 32, tile_n = 8, per_step = 4;  // lanes, columns of a product, quads of a product

// What rounding two values to halves leaves out, times `scale`.
__device__ __forceinline__ unsigned pack_rest(float a, float b, float scale) {
  const float2 kept = ptx::unpack_halves(ptx::pack_halves(a, b));
  return ptx::pack_halves((a - kept.x) * scale, (b - kept.y) * scale);
}

// The fragments of a filter w (M,C,R,S), row by row and product by product: value k of register i is the weight at
// where(row, step, i, k), or zero where the filter has none. With `low` what rounding to halves leaves out of it, times
// `scale`.
struct Weight {
  int m, c, r, s;
};
template <int c_size, int m_size, int r_size, int s_size, int rows, int steps, class Where>
__device__ __forceinline__ void load_fragments(unsigned (&a)[rows][steps][4], const float* w, bool low, float scale,
                                               Where where) {
#pragma unroll
  for (int row = 0; row < rows; row++)
#pragma unroll
    for (int step = 0; step < steps; step++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float v[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
          const Weight at = where(row, step, i, k);
          const bool inside =
              at.m < m_size && at.c < c_size && at.r >= 0 && at.r < r_size && at.s >= 0 && at.s < s_size;
          v[k] = inside ? w[((at.m * c_size + at.c) * r_size + at.r) * s_size + at.s] : 0.0f;
        }
        a[row][step][i] = low ? pack_rest(v[0], v[1], scale) : ptx::pack_halves(v[0], v[1]);
      }
}

// The sizes of a convolution (M,C,R,S) in quads.
template <int c_size, int m_size, int r_size, int s_size>
struct Filter {
  static_assert(c_size <= 4, "a quad has four values");
  static constexpr int width = c_size <= 2 ? 2 : 1, height = c_size == 1 ? 2 : 1;  // pixels of a quad
  static constexpr int tile_m = 16 / (width * height);                             // output channels of a product
  static constexpr int rows = (r_size + 2 * (height - 1)) / height;  // with room to move by height - 1 pixels
  static constexpr int steps =
      ((s_size + 2 * (width - 1)) / width + per_step - 1) / per_step;  // products of a filter row

  // Where value e of a quad is: channel, pixel row and column.
  static constexpr __device__ int channel(int e) { return e % (4 / (width * height)); }
  static constexpr __device__ int y(int e) { return e / (4 / height) % height; }
  static constexpr __device__ int x(int e) { return e / (4 / (width * height)) % width; }

  // What row g of a product is, lower half: output channel, pixel row of the quad. Row g + 8 is the pixel to the right,
  // or where quads are one pixel wide the channel 8 further.
  static __device__ int m(int g) { return g % tile_m; }
  static __device__ int dy(int g) { return g / tile_m % height; }

  unsigned a[rows][steps][4];

  // The fragments of A for the output channels from m0 on; see load_fragments.
  __device__ void load(const float* w, int m0, bool low = false, float scale = 1.0f) {
    const int g = threadIdx.x % lanes / 4, t = threadIdx.x % 4;
    load_fragments<c_size, m_size, r_size, s_size>(a, w, low, scale, [=](int row, int step, int i, int k) {
      const int e = i / 2 * 2 + k, right = width == 2 ? i % 2 : 0;
      return Weight{m0 + m(g) + (width == 1 ? i % 2 * 8 : 0), channel(e), row * height + y(e) - dy(g),
                    (step * per_step + t) * width + x(e) - right};
    });
  }
};

// The quad of four values, and with `low` what it leaves out of them, times `scale`.
__device__ __forceinline__ uint2 pack(const float (&v)[4]) {
  return make_uint2(ptx::pack_halves(v[0], v[1]), ptx::pack_halves(v[2], v[3]));
}
__device__ __forceinline__ uint2 pack_rest(const float (&v)[4], float scale) {
  return make_uint2(pack_rest(v[0], v[1], scale), pack_rest(v[2], v[3], scale));
}

// The B registers of one row of quads: `quad` is this lane's first one.
template <int steps>
__device__ __forceinline__ void load_row(unsigned (&b)[steps][2], const uint2* quad) {
#pragma unroll
  for (int step = 0; step < steps; step++) {
    const uint2 both = quad[step * per_step];
    b[step][0] = both.x, b[step][1] = both.y;
  }
}

// `strip` rows of 8 columns of quads. Rows of the input come one after the other, each to all output rows that it
// serves. done(p, sums) gets row p: of lane (g, t) sums[0..1] for rows g, sums[2..3] for rows g + 8, columns 2t, 2t
// + 1. `quad`: in shared memory, the first row's quad t of column g; rows are `pitch` quads apart.
template <int strip, class Filter, class Done>
__device__ __forceinline__ void multiply(const Filter& filter, const uint2* quad, int pitch, Done done) {
  unsigned next[Filter::steps][2];
  load_row(next, quad);
  float acc[strip][4];
#pragma unroll
  for (int h = 0; h < strip + Filter::rows - 1; h++) {
    unsigned b[Filter::steps][2];
#pragma unroll
    for (int step = 0; step < Filter::steps; step++) b[step][0] = next[step][0], b[step][1] = next[step][1];
    if (h + 1 < strip + Filter::rows - 1) load_row(next, quad += pitch);  // on their way during these products
    if (h < strip) acc[h][0] = acc[h][1] = acc[h][2] = acc[h][3] = 0.0f;
#pragma unroll
    for (int step = 0; step < Filter::steps; step++)  // outside: products that follow each other are of different sums
#pragma unroll
      for (int r = Filter::rows - 1; r >= 0; r--)
        if (h - r >= 0 && h - r < strip) ptx::mma_m16n8k16(acc[h - r], filter.a[r][step], b[step]);
    if (h >= Filter::rows - 1) done(h - (Filter::rows - 1), acc[h - (Filter::rows - 1)]);
  }
}

constexpr float low_scale = 2048.0f;  // 2^11: keeps low halves as far from the subnormal numbers as the high ones

// The same of operands that are two halves each, v = high + low / low_scale: high high + (high low + low high) /
// low_scale, with the small terms in sums of their own. `low` is where the low quads lie, seen from the high ones. A
// filter row of the high products is summed by itself: the tensor cores cut sums off, an addition outside of them
// rounds.
template <int strip, class Filter, class Done>
__device__ __forceinline__ void multiply_split(const Filter& high, const Filter& low, const uint2* quad, int to_low,
                                               int pitch, Done done) {
  float acc[strip][4], acc_low[strip][4];
#pragma unroll
  for (int h = 0; h < strip + Filter::rows - 1; h++, quad += pitch) {
    unsigned b[Filter::steps][2], b_low[Filter::steps][2];
    load_row(b, quad);
    load_row(b_low, quad + to_low);
    if (h < strip)
      for (int i = 0; i < 4; i++) acc[h][i] = acc_low[h][i] = 0.0f;
    float part[Filter::rows][4] = {};  // of a filter row
#pragma unroll
    for (int step = 0; step < Filter::steps; step++) {
#pragma unroll
      for (int r = Filter::rows - 1; r >= 0; r--)
        if (h - r >= 0 && h - r < strip) ptx::mma_m16n8k16(part[r], high.a[r][step], b[step]);
#pragma unroll
      for (int r = Filter::rows - 1; r >= 0; r--)
        if (h - r >= 0 && h - r < strip) ptx::mma_m16n8k16(acc_low[h - r], low.a[r][step], b[step]);
#pragma unroll
      for (int r = Filter::rows - 1; r >= 0; r--)
        if (h - r >= 0 && h - r < strip) ptx::mma_m16n8k16(acc_low[h - r], high.a[r][step], b_low[step]);
    }
#pragma unroll
    for (int r = Filter::rows - 1; r >= 0; r--)
      if (h - r >= 0 && h - r < strip)
        for (int i = 0; i < 4; i++) acc[h - r][i] += part[r][i];
    if (h < Filter::rows - 1) continue;
    float (&sum)[4] = acc[h - (Filter::rows - 1)];
    for (int i = 0; i < 4; i++) sum[i] += acc_low[h - (Filter::rows - 1)][i] / low_scale;
    done(h - (Filter::rows - 1), sum);
  }
}

// How 8 columns of a product lie on an image of `columns` quad columns cut into `strips` of rows: 8 columns of one
// strip, and where fewer than 8 are left at the edge, 2 or 4 of several strips each.
struct Jobs {
  int strips, columns, full, width, count;
  __device__ Jobs(int strips, int columns) : strips(strips), columns(columns) {
    full = columns / tile_n * strips;
    const int rest = columns % tile_n;
    width = rest == 0 || rest > 4 ? 8 : rest > 2 ? 4 : 2;
    const int together = tile_n / width;  // strips of a job at the edge
    count = full + (rest ? (strips + together - 1) / together : 0);
  }
};
// Strip and column of column n of a job; they may lie outside.
struct Place {
  int strip, column;
  __device__ Place(const Jobs& jobs, int job, int n) {
    const bool edge = job >= jobs.full;
    strip = edge ? (job - jobs.full) * (tile_n / jobs.width) + n / jobs.width : job % jobs.strips;
    column = edge ? jobs.columns / tile_n * tile_n + n % jobs.width : job / jobs.strips * tile_n + n;
  }
};

}  // namespace quads
