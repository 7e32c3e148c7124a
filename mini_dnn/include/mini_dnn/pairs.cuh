// Convolutions of three or four channels as products of a warpgroup: #include <mini_dnn/pairs.cuh>
//
// wgmma reads its operand b directly from shared memory, in rows of 16 bytes. Here such a row is a pair: two adjacent
// pixels of 4 channels. Column n of a product starts at pair n. Core matrices overlap, so an address replaces what
// unrolling would copy. One product computes 2 x 2 pixels of 16 channels, for 8 pairs of columns and any number of
// pairs of rows. Its a has 64 rows, with the filter moved by up to one pixel in both directions. A filter of 7 x 7 then
// uses 8 x 8 pixels, 16 products of k = 16. Rows are also paired: even and odd rows have separate planes. If fewer than
// 8 pairs of columns are left at the right edge, a copy in column order is used, in which the 8 columns of a core
// matrix are pairs of rows.
#pragma once
#include <mini_dnn/quads.cuh>

#ifdef PTX_WGMMA
namespace pairs {

constexpr int group = 8, slot_bytes = 16;                 // columns of a core matrix; a pair in shared memory
constexpr int edge_groups = 3, edge_n = 8 * edge_groups;  // pairs of rows that a product at the edge takes

// The fragments of a convolution (M,C,R,S) for a warpgroup, whose warp w has channels w, w + 4, w + 8 and w + 12.
template <int c_size, int m_size, int r_size, int s_size>
struct Filter {
  static constexpr int rows = r_size + 1, steps = (s_size + 1 + 3) / 4;  // includes the shift by one pixel
  static constexpr int width = 2, height = 2, tile_m = 16;

  // The meaning of a warp's row g < 8: output channel and pixel row of the pair. Row g + 8 is the pixel to the right.
  static __device__ int m(int g) { return threadIdx.x / quads::lanes % 4 + 4 * (g % 4); }
  static __device__ int dy(int g) { return g / 4; }

  unsigned a[rows][steps][4];

  // The fragments of a for the output channels from m0 on; see quads::load_fragments.
  __device__ void load(const float* w, int m0, bool low = false, float scale = 1.0f) {
    const int g = threadIdx.x % quads::lanes / 4, t = threadIdx.x % 4;
    quads::load_fragments<c_size, m_size, r_size, s_size>(a, w, low, scale, [=](int row, int step, int i, int k) {
      return quads::Weight{m0 + m(g), t % 2 * 2 + k, row - dy(g), 4 * step + i / 2 * 2 + t / 2 - i % 2};
    });
  }
};

__device__ constexpr int larger(int a, int b) { return a > b ? a : b; }

// The layout of a band's pairs in shared memory, in slots of 16 bytes: planes [2][rows / 2][pitch] for groups of 8
// columns, followed by the copy for the edge, [column - first][2][edge_pitch].
struct Layout {
  int columns, full, rest;      // pairs of columns of the band, groups of 8 in the output, remaining pairs
  int pitch, plane;             // of a row, of a plane
  int first, edge, edge_pitch;  // first column of the copy, its start, the pitch of a column and parity
  int size;

  // For a band of output rows of Q pixels, whole tiles of `groups` pairs of rows.
  template <class Filter>
  __device__ static constexpr Layout of(int band, int Q, int groups) {
    constexpr int more = 2 * Filter::steps - 1;  // pairs that a filter needs in addition to its own
    const int out = (Q + 1) / 2, plane_rows = (band + Filter::rows - 1) / 2;
    Layout at{};
    at.columns = out + more, at.full = out / group, at.rest = out % group;
    at.pitch = at.full ? at.full * group + more : 0, at.plane = plane_rows * at.pitch;
    at.first = at.full * group, at.edge = 2 * at.plane;
    at.edge_pitch = plane_rows;  // products also read the next column, and beyond the last one
    at.size = at.edge + (at.rest ? (at.rest + more) * 2 * at.edge_pitch : 0);
    // Leaves room for the operands of the last products, even if they are counted as one piece, as compute-sanitizer
    // does.
    const int beside = (Filter::rows - 1) / 2, edge_rows = (band / 2 - 1) / edge_n * edge_n;
    const int last = at.plane + (band / 2 - groups + beside) * at.pitch + (at.full - 1) * group + more - 1;
    const int last_edge = at.edge + (2 * (at.rest + more) - 3) * at.edge_pitch + edge_rows + beside;
    if (at.full) at.size = larger(at.size, last + 2 * group * groups);
    if (at.rest) at.size = larger(at.size, larger(last_edge + 2 * edge_n, last_edge + 2 * at.edge_pitch + edge_n));
    return at;
  }

  __device__ __forceinline__ void put(uint4* slot, int row, int column, uint4 pair) const {
    if (column < pitch) slot[row % 2 * plane + row / 2 * pitch + column] = pair;
    if (rest && column >= first) slot[edge + ((column - first) * 2 + row % 2) * edge_pitch + row / 2] = pair;
  }
};

// An operand b: its first core matrix, and the distances in slots to the other parity of rows, to the next two rows,
// and to the next four pixels.
struct Operand {
  unsigned long long descriptor;
  int parity, rows, step;

  // For 8 columns of pairs from group * 8 on, and pairs of rows from `row` on.
  __device__ static Operand main(const uint4* slot, const Layout& at, int row, int group_of_columns) {
    const uint4* const first = slot + row * at.pitch + group_of_columns * group;
    return {ptx::matrix_descriptor(first, slot_bytes, at.pitch * slot_bytes), at.plane, at.pitch, 2};
  }
  // For column first + `column`, and pairs of rows from `row` on.
  __device__ static Operand edge(const uint4* slot, const Layout& at, int row, int column) {
    const uint4* const first = slot + at.edge + column * 2 * at.edge_pitch + row;
    return {ptx::matrix_descriptor(first, 2 * at.edge_pitch * slot_bytes, group * slot_bytes), at.edge_pitch, 1,
            4 * at.edge_pitch};
  }

  // The descriptor of filter row r and step s, `further` slots away.
  __device__ __forceinline__ unsigned long long at(int r, int s, int further = 0) const {
    const unsigned low =
        unsigned(descriptor) + (r % 2 * parity + r / 2 * rows + s * step + further);  // carries nothing
    return descriptor >> 32 << 32 | low;
  }
};

// acc[i] = the sums of the operand's columns 8 i to 8 i + 7.
template <int groups, class Filter>
__device__ __forceinline__ void multiply(float (&acc)[groups][4], const Filter& filter, const Operand& b) {
  ptx::wgmma_fence();
  ptx::wgmma_m64k16<8 * groups, false>(acc, filter.a[0][0], b.at(0, 0));
#pragma unroll
  for (int r = 0; r < Filter::rows; r++)
#pragma unroll
    for (int s = 0; s < Filter::steps; s++)
      if (r + s > 0) ptx::wgmma_m64k16<8 * groups, true>(acc, filter.a[r][s], b.at(r, s));
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(acc);
}

// The same as quads::multiply_split. `to_low` is the distance in slots from a high pair to its low one.
template <int groups, class Filter>
__device__ __forceinline__ void multiply_split(float (&acc)[groups][4], const Filter& high, const Filter& low,
                                               const Operand& b, int to_low) {
  constexpr int n = 8 * groups;
  float part[groups][4], small[groups][4];  // of a filter row; of the products with a low factor
#pragma unroll
  for (int r = 0; r < Filter::rows; r++) {
    ptx::wgmma_fence();
    ptx::wgmma_m64k16<n, false>(part, high.a[r][0], b.at(r, 0));
    if (r == 0) ptx::wgmma_m64k16<n, false>(small, low.a[0][0], b.at(0, 0));
    if (r > 0) ptx::wgmma_m64k16<n, true>(small, low.a[r][0], b.at(r, 0));  // products of two sums alternate
#pragma unroll
    for (int s = 1; s < Filter::steps; s++) ptx::wgmma_m64k16<n, true>(part, high.a[r][s], b.at(r, s));
    ptx::wgmma_commit();
#pragma unroll
    for (int s = 0; s < Filter::steps; s++) {
      ptx::wgmma_m64k16<n, true>(small, high.a[r][s], b.at(r, s, to_low));
      if (s > 0) ptx::wgmma_m64k16<n, true>(small, low.a[r][s], b.at(r, s));
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>(part);
#pragma unroll
    for (int i = 0; i < groups; i++)
#pragma unroll
      for (int k = 0; k < 4; k++) acc[i][k] = r ? acc[i][k] + part[i][k] : part[i][k];
  }
  ptx::wgmma_wait<0>(small);
#pragma unroll
  for (int i = 0; i < groups; i++)
#pragma unroll
    for (int k = 0; k < 4; k++) acc[i][k] += small[i][k] / quads::low_scale;
}

}  // namespace pairs
#endif
