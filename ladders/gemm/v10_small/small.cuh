// Small products: tiles of 16 rows give every multiprocessor a little to load, and a k of up to 512 is in flight at
// once.
#pragma once
#include "fragments.cuh"

namespace small {

using fragments::matrices;
using fragments::multiply;
using fragments::place;

constexpr int WARPS = 4;            // of a block; they share the k of each stage, so that no part of it is read twice
constexpr int PITCH = COLUMNS + 8;  // floats from row to row of sums
static_assert(TILE_K == WARPS * 16 && THREADS == WARPS * 32, "16 of k for each warp");
constexpr int A_LENGTH = A_TURNED ? ROWS : TILE_K, B_LENGTH = B_TURNED ? TILE_K : COLUMNS;  // of a line of a tile
constexpr int STAGE = (ROWS + COLUMNS) * TILE_K;                                            // elements

// Starts the copy of a part of an operand, which has `lines` lines of `length` elements in memory. Beyond them, it
// writes zeros.
template <int tile_lines, int tile_length>
__device__ __forceinline__ void copy(lines::Bits* tile, const lines::Bits* operand, int pitch, int line0, int lines,
                                     int at0, int length) {
  constexpr int parts = tile_length / 8, count = tile_lines * parts;
#pragma unroll
  for (int i = 0; i < count; i += THREADS) {
    const int line = (i + threadIdx.x) / parts, at = (i + threadIdx.x) % parts * 8;
    if (count % THREADS != 0 && line >= tile_lines) break;
    const int here = line0 + line < lines ? max(min(length - at0 - at, 8), 0) : 0;
    const lines::Bits* const from = operand + (here > 0 ? (long long)(line0 + line) * pitch + at0 + at : 0);
    ptx::cp_async<16>(tile + place<tile_length>(line, at), from, 2 * here);
  }
}

// Adds the product of a warp's share of a stage: 16 of k, from l on.
__device__ __forceinline__ void multiply(float (&d)[ROWS / 16][COLUMNS / 8][4], const lines::Bits* a_tile, int l) {
  const lines::Bits* const b_tile = a_tile + ROWS * TILE_K;
  unsigned left[ROWS / 16][4];
#pragma unroll
  for (int i = 0; i < ROWS / 16; i++)
    matrices<A_LENGTH, A_TURNED, !A_TURNED>(left[i], a_tile, A_TURNED ? l : i * 16, A_TURNED ? i * 16 : l);
#pragma unroll
  for (int j = 0; j < COLUMNS / 8; j += 2) {
    unsigned right[4];  // k and k + 8 of eight columns, then of the next eight
    matrices<B_LENGTH, !B_TURNED, !B_TURNED>(right, b_tile, B_TURNED ? j * 8 : l, B_TURNED ? l : j * 8);
    const unsigned low[2] = {right[0], right[1]}, high[2] = {right[2], right[3]};
#pragma unroll
    for (int i = 0; i < ROWS / 16; i++) {
      multiply(d[i][j], left[i], low);
      multiply(d[i][j + 1], left[i], high);
    }
  }
}

struct alignas(16) Eight {
  Out part[8];
};

// Adds the sums of all warps, which lie in `sums` one after the other, and stores eight elements at a time.
__device__ __forceinline__ void store(const float* sums, const sums::Matrix<Out>& to, int row0, int column0) {
#pragma unroll
  for (int i = 0; i < ROWS * COLUMNS / 8; i += THREADS) {
    const int row = (i + threadIdx.x) / (COLUMNS / 8), column = (i + threadIdx.x) % (COLUMNS / 8) * 8;
    if (row >= ROWS || row0 + row >= to.m) break;
    const long long at = (long long)(row0 + row) * to.pitch + column0 + column;
    const int here = to.n - column0 - column;
    Eight eight;
    float sum[8] = {};
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++) {
      const float* const of_warp = sums + (warp * ROWS + row) * PITCH + column;
#pragma unroll
      for (int j = 0; j < 8; j++) sum[j] += of_warp[j];
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
      sum[j] *= to.alpha;
      if (to.beta != 0.0f && j < here) sum[j] += to.beta * float(to.c0[at + j]);
      eight.part[j] = Out(sum[j]);
    }
    if (here >= 8 && to.pitch % 8 == 0) {
      *reinterpret_cast<Eight*>(to.c + at) = eight;
    } else {
#pragma unroll
      for (int j = 0; j < 8; j++)
        if (j < here) to.c[at + j] = eight.part[j];
    }
  }
}

// `memory` has the stages, and later the sums.
__device__ __forceinline__ void product(char* memory, const lines::Bits* a, const lines::Bits* b, const Out* c0, Out* c,
                                        int m, int n, int k, int a_pitch, int b_pitch, int c_pitch, float alpha,
                                        float beta) {
  lines::Bits* const stages = reinterpret_cast<lines::Bits*>(memory);
  const int across = (n + COLUMNS - 1) / COLUMNS, tiles = (m + ROWS - 1) / ROWS * across;  // in a row, in an entry
  const int entry = blockIdx.x / tiles, tile = blockIdx.x - entry * tiles;
  const int row0 = tile / across * ROWS, column0 = tile % across * COLUMNS;
  a += entry * (long long)(A_TURNED ? k : m) * a_pitch;
  b += entry * (long long)(B_TURNED ? n : k) * b_pitch;
  auto fetch = [&](int l0, int stage) {
    lines::Bits *const a_tile = stages + stage * STAGE, *const b_tile = a_tile + ROWS * TILE_K;
    if (l0 < k) {
      if constexpr (A_TURNED)
        copy<TILE_K, ROWS>(a_tile, a, a_pitch, l0, k, row0, m);
      else
        copy<ROWS, TILE_K>(a_tile, a, a_pitch, row0, m, l0, k);
      if constexpr (B_TURNED)
        copy<COLUMNS, TILE_K>(b_tile, b, b_pitch, column0, n, l0, k);
      else
        copy<TILE_K, COLUMNS>(b_tile, b, b_pitch, l0, k, column0, n);
    }
    ptx::cp_async_commit();
  };

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  ptx::grid_wait();
#pragma unroll 1
  for (int stage = 0; stage < STAGES - 1; stage++) fetch(stage * TILE_K, stage);
  ptx::grid_launch_dependents();
  float d[ROWS / 16][COLUMNS / 8][4] = {};
  int stage = 0, free = STAGES - 1;
#pragma unroll 1
  for (int l0 = 0; l0 < k; l0 += TILE_K) {
    ptx::cp_async_wait<STAGES - 2>();
    __syncthreads();  // this stage has arrived, and the previous one has been read: it may be overwritten
    fetch(l0 + (STAGES - 1) * TILE_K, free);
    multiply(d, stages + stage * STAGE, warp * 16);
    free = stage;
    if (++stage == STAGES) stage = 0;
  }

  __syncthreads();  // the sums take the place of the stages
  float* const sums = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int i = 0; i < ROWS / 16; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int row = warp * ROWS + 16 * i + 8 * h + lane / 4;
        *reinterpret_cast<float2*>(sums + row * PITCH + 8 * j + lane % 4 * 2) =
            make_float2(d[i][j][2 * h], d[i][j][2 * h + 1]);
      }
  __syncthreads();
  const long long of_entry = entry * (long long)m * c_pitch;
  store(sums, {c0 + of_entry, c + of_entry, m, n, c_pitch, alpha, beta}, row0, column0);
}

}  // namespace small
