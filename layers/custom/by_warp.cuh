// Products by mma.sync, on quads (mini_dnn/quads.cuh). A band has STRIPS strips of ROWS rows of quads. A warp processes
// jobs of 8 columns of quads in one strip or, at the right edge, of 2 or 4 columns in several strips.
#pragma once
#include <mini_dnn/quads.cuh>

typedef quads::Filter<C, M, R, S> Filter;
#include "out.cuh"

// How a thread moves through rows of `pitch` quads in steps of THREADS, without a division.
struct Walk {
  int row, column, rows, columns, pitch;
  __device__ explicit Walk(int pitch)
      : row(threadIdx.x / pitch),
        column(threadIdx.x % pitch),
        rows(THREADS / pitch),
        columns(THREADS % pitch),
        pitch(pitch) {}
  __device__ __forceinline__ void step() {
    row += rows, column += columns;
    if (column >= pitch) column -= pitch, row++;
  }
};

struct Products {
  static constexpr int ROWS_IN =
      STRIPS * ROWS + Filter::rows - 1;  // rows of quads of a band, with the filter's overhang

  Filter high, low;
  quads::Jobs jobs;
  Walk walk;
  uint2* quad;  // of a band; with SPLIT, those of the low halves follow

  __device__ Products(void* memory, int Q)
      : jobs(STRIPS, (Q + X - 1) / X),
        walk(jobs.columns - 1 + Filter::steps * quads::per_step),
        quad(static_cast<uint2*>(memory)) {}

  // Packs a band with `rows` rows of pixels into quads, with zeros outside the image.
  __device__ __forceinline__ void pack(const float* in, int plane, int rows, int W, Scale& scale) const {
    for (Walk at = walk; at.row < ROWS_IN; at.step()) {
      const int h0 = at.row * Y, w0 = at.column * X;
      const float* const pixel = in + h0 * W + w0;
      float v[4];
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int c = Filter::channel(e), h = Filter::y(e), w = Filter::x(e);
        if constexpr (PAIRS && X == 2) {  // two values in one load
          const bool inside = c < C && h0 + h < rows && w0 < W;
          const float2 both = inside ? *reinterpret_cast<const float2*>(pixel + c * plane + h * W) : make_float2(0, 0);
          v[e] = w ? both.y : both.x;
        } else {
          v[e] = c < C && h0 + h < rows && w0 + w < W ? pixel[c * plane + h * W + w] : 0.0f;
        }
      }
      scale(v);
      const int i = at.row * at.pitch + at.column;
      quad[i] = quads::pack(v);
      if constexpr (SPLIT) quad[ROWS_IN * at.pitch + i] = quads::pack_rest(v, quads::low_scale);
    }
  }

  // Computes all sums of a band of `rows` output rows, and writes them to a slab.
  __device__ __forceinline__ void run(const Slab& slab, int rows, int Q, const Undo& undo) const {
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int job = warp; job < jobs.count; job += WARPS) {
      const quads::Place from(jobs, job, g), to(jobs, job, 2 * t);
      const int strip = min(from.strip, STRIPS - 1), column = min(from.column, jobs.columns - 1);
      const uint2* const first = quad + strip * ROWS * walk.pitch + column + t;
      Target target(slab, Filter::m(g), to.strip * ROWS * Y, Filter::dy(g), to.column * X, rows, Q);
      if (to.strip >= STRIPS) target.out = nullptr;
      target.shared = job < jobs.full || jobs.width > 2;
      float top[2] = {};
      auto done = [&](int p, float (&sum)[4]) {
        undo(sum);
        put(target, p, top, sum);
      };
      if constexpr (SPLIT) {
        quads::multiply_split<ROWS>(high, low, first, ROWS_IN * walk.pitch, walk.pitch, done);
      } else {
        quads::multiply<ROWS>(high, first, walk.pitch, done);
      }
    }
  }
};
