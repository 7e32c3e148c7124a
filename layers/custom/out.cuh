// How sums leave the registers: unchanged, or after ReLU and a maximum over windows.
#pragma once

constexpr int X = Filter::width, Y = Filter::height;  // of a quad of sums

// Results of a band, before they are copied to y.
struct Slab {
  float* out;
  int pitch, width;  // of a channel, of a row
};

// Where this lane's sums of a job are stored: columns 2t and 2t + 1 of quads, of channel m and, if X is 1, also of
// channel m + 8.
struct Target {
  float* out;          // null: they are not stored
  int p, q;            // its first pixel before pooling: row of the band, column of the image
  int rows, Q;         // the numbers of existing rows and columns
  int width, pitch;    // of a row and of a channel of the slab
  bool shared = true;  // the columns of two lanes belong to one window

  // The lane's first pixel is (p0 + dy, q), p0 the first row of the job.
  __device__ __forceinline__ Target(const Slab& slab, int m, int p0, int dy, int q, int rows, int Q)
      : out(nullptr), p(p0 + dy), q(q), rows(rows), Q(Q), width(slab.width), pitch(slab.pitch) {
    const bool exchanged = POOL == 2 && Y == 2;  // see pool()
    const int column = (q + (exchanged ? 2 * dy : 0)) / WINDOW;
    if (column < slab.width && (exchanged || POOL < 2 || (dy == 0 && q % WINDOW == 0)))
      out = slab.out + m * slab.pitch + (POOL > 1 ? p0 / WINDOW : p) * slab.width + column;
  }
};

// Stores row p of quads: two or four neighbouring pixels.
__device__ __forceinline__ void store(const Target& to, int p, const float (&sum)[4]) {
  if (!to.out || (SHORT && to.p + p * Y >= to.rows)) return;
  float* out = to.out + p * Y * to.width;
  if constexpr (X == 2) {
    if constexpr (VECTOR == 4) {
      *reinterpret_cast<float4*>(out) = make_float4(sum[0], sum[2], sum[1], sum[3]);
    } else if constexpr (VECTOR == 2) {
      *reinterpret_cast<float2*>(out) = make_float2(sum[0], sum[2]);
      if (to.q + 2 < to.Q) *reinterpret_cast<float2*>(out + 2) = make_float2(sum[1], sum[3]);
    } else {
      const float in_order[4] = {sum[0], sum[2], sum[1], sum[3]};
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (to.q + i < to.Q) out[i] = in_order[i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; i += 2, out += 8 * to.pitch)
      if constexpr (VECTOR >= 2) {
        *reinterpret_cast<float2*>(out) = make_float2(sum[i], sum[i + 1]);
      } else {
        out[0] = sum[i];
        if (to.q + 1 < to.Q) out[1] = sum[i + 1];
      }
  }
}

// Adds row p of quads to the maxima `top`, which start at 0, the minimum after ReLU, and stores complete windows.
// Columns beyond the image repeat its last quad, which changes no maximum.
__device__ __forceinline__ void pool(const Target& to, int p, float (&top)[2], const float (&sum)[4]) {
  // If X is 1: a window of channel m and one of channel m + 8. If X is 2: two windows of channel m, or one with POOL 4.
  float v[2] = {ptx::max_nan(sum[0], sum[X == 2 ? 2 : 1]), ptx::max_nan(sum[X == 2 ? 1 : 2], sum[3])};
  if constexpr (X == 2 && ODD) {  // the last quad has no right half
    if (to.q + 1 >= to.Q) v[0] = sum[0];
    if (to.q + 3 >= to.Q) v[1] = to.q + 2 < to.Q ? sum[1] : v[0];
  }
#pragma unroll
  for (int i = 0; i < 2; i++)
    if (!SHORT || to.p + p * Y < to.rows) top[i] = ptx::max_nan(top[i], v[i]);
  if ((p + 1) * Y % WINDOW) return;
  v[0] = top[0], v[1] = top[1];
  top[0] = top[1] = 0.0f;
  if constexpr (X == 2 && POOL == 4) v[0] = ptx::max_nan(v[0], v[1]);
  if constexpr (X == 2 && POOL == 2 && Y == 2) {  // two lanes have rows of both windows, and each takes one window
    const bool second = threadIdx.x & 16;
    v[0] = ptx::max_nan(second ? v[1] : v[0], __shfl_xor_sync(~0u, second ? v[0] : v[1], 16));
  } else if constexpr (Y == 2) {
    v[0] = ptx::max_nan(v[0], __shfl_xor_sync(~0u, v[0], 16));
  }
  if constexpr (X == 1 && POOL == 4)
    for (int i = 0; i < 2; i++)
      if (to.shared) v[i] = ptx::max_nan(v[i], __shfl_xor_sync(~0u, v[i], 1));
  if (!to.out || (SHORT && to.p / WINDOW * WINDOW + p * Y / WINDOW * WINDOW >= to.rows)) return;
  float* const out = to.out + p * Y / WINDOW * to.width;
  out[0] = v[0];
  if constexpr (X == 1) out[8 * to.pitch] = v[1];
  if constexpr (X == 2 && Y == 1 && POOL == 2)
    if (to.q + 2 < to.Q) out[1] = v[1];
}

// Stores the sums of row p of quads of a job. `top` must be 0 before the first row.
__device__ __forceinline__ void put(const Target& to, int p, float (&top)[2], float (&sum)[4]) {
  if constexpr (POOL > 1) {
    pool(to, p, top, sum);
    return;
  }
  if constexpr (POOL == 1)
    for (int i = 0; i < 4; i++) sum[i] = ptx::max_nan(sum[i], 0.0f);
  store(to, p, sum);
}
