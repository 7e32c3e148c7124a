// Products by wgmma, on pairs (mini_dnn/pairs.cuh). A warpgroup processes tiles of 8 pairs of columns and GROUPS pairs
// of rows, one below the other or, at the right edge, of one pair of columns and 24 pairs of rows.
#pragma once
#include <mini_dnn/pairs.cuh>

typedef pairs::Filter<C, M, R, S> Filter;
#include "out.cuh"

// The pixels of a lane: (p + dy, q), (p + dy, q + 1), and the same two columns two rows further down.
__device__ __forceinline__ void put_edge(const Slab& slab, int m, int p, int dy, int q, int rows, int Q,
                                         const float (&sum)[4]) {
  float* const channel = slab.out + m * slab.pitch;
  if constexpr (POOL < 2) {
#pragma unroll
    for (int i = 0; i < 2; i++, p += 2)
#pragma unroll
      for (int x = 0; x < 2; x++) {
        const float v = sum[i + 2 * x];
        if (p + dy < rows && q + x < Q) channel[(p + dy) * Q + q + x] = POOL ? ptx::max_nan(v, 0.0f) : v;
      }
    return;
  }
  float top[2] = {};
#pragma unroll
  for (int i = 0; i < 2; i++) {
    if (p + 2 * i + dy < rows) top[i] = ptx::max_nan(0.0f, ptx::max_nan(sum[i], sum[i + 2]));
    top[i] = ptx::max_nan(top[i], __shfl_xor_sync(~0u, top[i], 16));
  }
  if (POOL == 4) top[0] = ptx::max_nan(top[0], top[1]);
  for (int i = 0; i < 4 / WINDOW; i++)
    if (dy == 0 && p + 2 * i < rows) channel[(p / WINDOW + i) * slab.width + q / WINDOW] = top[i];
}

struct Products {
  static constexpr int WARPGROUPS = WARPS / 4, TILES = BAND / (2 * GROUPS);
  static constexpr int TOGETHER = INPUTS > 0 ? 2 : 7;  // pairs that a thread reads at once: more if from L2
  static_assert(WARPS % 4 == 0 && BAND % (2 * GROUPS) == 0, "whole warpgroups, whole tiles");

  Filter high, low;
  pairs::Layout at;
  uint4* slot;  // pairs of a band; with SPLIT, those of the low halves follow

  __device__ Products(void* memory, int Q)
      : at(pairs::Layout::of<Filter>(BAND, Q, GROUPS)), slot(static_cast<uint4*>(memory)) {
    for (int i = threadIdx.x; i < (1 + SPLIT) * at.size; i += THREADS) slot[i] = make_uint4(0, 0, 0, 0);
  }

  // Packs a band with `rows` rows of pixels into pairs, with zeros outside the image.
  __device__ __forceinline__ void pack(const float* in, int plane, int rows, int W, Scale& scale) const {
    const int across = min(at.columns, THREADS), down = THREADS / across, first = threadIdx.x / across;
    if (first >= down) return;
    for (int column = threadIdx.x % across; column < at.columns; column += across)
      for (int row = first; row < BAND + R - 1; row += TOGETHER * down) {
        float left[TOGETHER][4], right[TOGETHER][4];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) read(left[i], right[i], in, plane, row + i * down, 2 * column, rows, W);
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
          if (row + i * down < BAND + R - 1) {
            scale(left[i]), scale(right[i]);
            write(row + i * down, column, left[i], right[i]);
          }
      }
  }

  // Two pixels of a row.
  __device__ __forceinline__ void read(float (&left)[4], float (&right)[4], const float* in, int plane, int row, int w,
                                       int rows, int W) const {
    const float* const pixel = in + row * W + w;
#pragma unroll
    for (int c = 0; c < 4; c++) {
      left[c] = right[c] = 0.0f;
      if (c >= C || row >= rows) continue;
      if constexpr (PAIRS) {  // two values in one load
        if (w >= W) continue;
        const float2 both = *reinterpret_cast<const float2*>(pixel + c * plane);
        left[c] = both.x, right[c] = both.y;
      } else {
        if (w < W) left[c] = pixel[c * plane];
        if (w + 1 < W) right[c] = pixel[c * plane + 1];
      }
    }
  }
  __device__ __forceinline__ void write(int row, int column, const float (&left)[4], const float (&right)[4]) const {
    const uint2 a = quads::pack(left), b = quads::pack(right);
    at.put(slot, row, column, make_uint4(a.x, a.y, b.x, b.y));
    if constexpr (SPLIT) {
      const uint2 c = quads::pack_rest(left, quads::low_scale), d = quads::pack_rest(right, quads::low_scale);
      at.put(slot + at.size, row, column, make_uint4(c.x, c.y, d.x, d.y));
    }
  }

  template <int groups>
  __device__ __forceinline__ void multiply(float (&acc)[groups][4], const pairs::Operand& b, const Undo& undo) const {
    if constexpr (SPLIT) {
      pairs::multiply_split(acc, high, low, b, at.size);
#pragma unroll
      for (int i = 0; i < groups; i++) undo(acc[i]);
    } else {
      pairs::multiply(acc, high, b);
    }
  }

  // For a column at the edge: pixels beyond it repeat the last one, which changes no maximum.
  __device__ __forceinline__ void edge(float (&acc)[pairs::edge_groups][4], int row, int column, int Q,
                                       const Undo& undo) const {
    multiply(acc, pairs::Operand::edge(slot, at, row, column), undo);
    if (ODD && 2 * (at.first + column) + 1 >= Q)
#pragma unroll
      for (int i = 0; i < pairs::edge_groups; i++) acc[i][2] = acc[i][0], acc[i][3] = acc[i][1];
  }

  // Computes all sums of a band of `rows` output rows, and writes them to a slab.
  __device__ __forceinline__ void run(const Slab& slab, int rows, int Q, const Undo& undo) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, m = Filter::m(g), dy = Filter::dy(g);
    const int mine = WARPS == 4 ? 0 : __shfl_sync(~0u, threadIdx.x / 128, 0);  // a warp agrees
    constexpr int COLUMNS = POOL == 4 ? 2 : 1;                                 // of pairs, that a window takes
    for (int column = (WARPGROUPS - 1 - mine) * COLUMNS; column < at.rest; column += WARPGROUPS * COLUMNS)
      for (int row = 0; 2 * row < rows; row += pairs::edge_n) {
        float acc[pairs::edge_groups][4];
        edge(acc, row, column, Q, undo);
        if (POOL == 4 && column + 1 < at.rest) {
          float beside[pairs::edge_groups][4];
          edge(beside, row, column + 1, Q, undo);
#pragma unroll
          for (int i = 0; i < pairs::edge_groups; i++)
#pragma unroll
            for (int k = 0; k < 4; k++) acc[i][k] = ptx::max_nan(acc[i][k], beside[i][k]);
        }
#pragma unroll
        for (int i = 0; i < pairs::edge_groups; i++)
          put_edge(slab, m, 2 * (row + 8 * i + 2 * t), dy, 2 * (at.first + column), rows, Q, acc[i]);
      }
    for (int column = mine; column < at.full; column += WARPGROUPS) {
      const Target target(slab, m, 0, dy, 2 * (column * pairs::group + 2 * t), rows, Q);
      float top[2] = {};
#pragma unroll
      for (int tile = 0; tile < TILES; tile++) {
        if (SHORT && tile * 2 * GROUPS >= (rows + WINDOW - 1) / WINDOW * WINDOW) break;
        float acc[GROUPS][4];
        multiply(acc, pairs::Operand::main(slot, at, tile * GROUPS, column), undo);
#pragma unroll
        for (int i = 0; i < GROUPS; i++) put(target, tile * GROUPS + i, top, acc[i]);
      }
    }
  }
};
