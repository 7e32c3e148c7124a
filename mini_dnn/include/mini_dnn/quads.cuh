// Convolutions of up to four channels as products on tensor cores, without unrolling: #include <mini_dnn/quads.cuh>
//
// A quad is four adjacent values: one pixel of 4 channels, 1 x 2 pixels of 2 channels, or 2 x 2 pixels of 1 channel. If
// quads take the place of pixels (space to depth), all of these are the same convolution, from 4 values per quad to 16
// sums per quad. These sums are the pixels of the quad, for each output channel. Filter row r of this convolution is a
// matrix A (16, 4 per quad), which stays in registers. B is the image: column n of a product starts at quad n, and a
// step of mma.m16n8k16 uses four quads. Slots 2t, 2t + 1, 2t + 8 and 2t + 9 of k are quad t, so lane 4 g + t needs quad
// t of column g, which is one load of 8 bytes.
#pragma once
#include <mini_dnn/ptx.cuh>

namespace quads {

constexpr int lanes = 32, tile_n = 8, per_step = 4;  // lanes, columns of a product, quads of a product

// The part of two values that rounding to halves removes, times `scale`.
__device__ __forceinline__ unsigned pack_rest(float a, float b, float scale) {
  const float2 kept = ptx::unpack_halves(ptx::pack_halves(a, b));
  return ptx::pack_halves((a - kept.x) * scale, (b - kept.y) * scale);
}

// The fragments of a filter w (M,C,R,S), row by row and product by product. Value k of register i is the weight at
// where(row, step, i, k), or zero outside the filter. With `low`, it is the part of the weight that rounding to halves
// removes, times `scale`.
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
  static constexpr int rows = (r_size + 2 * (height - 1)) / height;  // includes the shift by up to height - 1 pixels
  static constexpr int steps =
      ((s_size + 2 * (width - 1)) / width + per_step - 1) / per_step;  // products of a filter row

  // The position of value e of a quad: channel, pixel row and column.
  static constexpr __device__ int channel(int e) { return e % (4 / (width * height)); }
  static constexpr __device__ int y(int e) { return e / (4 / height) % height; }
  static constexpr __device__ int x(int e) { return e / (4 / (width * height)) % width; }

  // The meaning of row g < 8 of a product: output channel and pixel row of the quad. Row g + 8 is the pixel to the
  // right or, if quads are one pixel wide, the channel 8 further.
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

// The quad of four values or, with `low`, the part of them that rounding removes, times `scale`.
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

// Multiplies `strip` rows of 8 columns of quads. Rows of the input are loaded one after the other, and each is used for
// all output rows that need it. done(p, sums) receives row p: lane (g, t) has columns 2t and 2t + 1, sums[0..1] for row
// g and sums[2..3] for row g + 8. `quad` points at quad t of column g of the first row in shared memory; rows are
// `pitch` quads apart.
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
    if (h + 1 < strip + Filter::rows - 1) load_row(next, quad += pitch);  // in flight during these products
    if (h < strip) acc[h][0] = acc[h][1] = acc[h][2] = acc[h][3] = 0.0f;
#pragma unroll
    for (int step = 0; step < Filter::steps; step++)  // outermost: consecutive products have different sums
#pragma unroll
      for (int r = Filter::rows - 1; r >= 0; r--)
        if (h - r >= 0 && h - r < strip) ptx::mma_m16n8k16(acc[h - r], filter.a[r][step], b[step]);
    if (h >= Filter::rows - 1) done(h - (Filter::rows - 1), acc[h - (Filter::rows - 1)]);
  }
}

constexpr float low_scale = 2048.0f;  // 2^11: keeps low halves as far from the subnormal numbers as the high ones

// The same for operands of two halves each, v = high + low / low_scale: high high + (high low + low high) / low_scale.
// The small terms have separate sums. `to_low` is the distance from the high quads to the low ones. The high products
// of a filter row are summed separately, because the tensor cores truncate sums, whereas an addition outside of them
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

// Assigns the 8 columns of a product to an image of `columns` quad columns, divided into `strips` of rows: 8 columns of
// one strip or, if at most 4 are left at the edge, 2 or 4 columns of several strips.
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
