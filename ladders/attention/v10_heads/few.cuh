// The at most 8 queries after three tiles, computed by a warpgroup of their own.
#pragma once
#include <mini_dnn/ptx_few_scores.cuh>
#include <mini_dnn/ptx_few_values.cuh>

#include "loader.cuh"

static_assert(!TAIL || KEYS == 200, "3 x 64 keys and 8 more");

// Everything is transposed, so that the queries are the 8 columns of products: warp w has keys 16 w to 16 w + 15 of
// each 64, and columns 16 w to 16 w + 15 of the values. Lane 4 g + t has keys (or columns) g and g + 8, queries 2 t and
// 2 t + 1. Powers are an operand in shared memory, 256 bytes for each 16 keys. There is no room for all 13 of these: 6
// are multiplied first, and then 7. In both rounds, four of them are in the place of the queries.
struct FewQueries {
  static constexpr int ALL = 13, ROUND = 6;
  const Block& block;
  const int slot;
  const unsigned long long head;  // descriptor of the head's first byte
  int& phase;                     // parity of the meetings
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, g = lane / 4, t = lane % 4;
  unsigned p[4][2];  // powers of 64 keys each, and of the last 8 in p[3][1] of warp 3
  float o[1][4];

  __device__ __forceinline__ void meet() const {  // the warpgroup
    ptx::mbarrier_arrive(&block.barriers().few);
    ptx::mbarrier_wait(&block.barriers().few, phase);
    phase ^= 1;
  }
  __device__ __forceinline__ float* exchanged() const { return reinterpret_cast<float*>(block.powers() + 512); }

  // Computes the powers, and the factors of a thread's queries: 1 / sum.
  __device__ __forceinline__ void powers(float (&factor)[2]) {
    float s[4][1][4], reference[2], sum[2] = {};
    ptx::wgmma_fence();
#pragma unroll
    for (int m = 0; m < 4; m++) {  // the last 64 keys are 56 of those before and 8 more
      const unsigned long long k = head + ((Q_BYTES + min(64 * m, KEYS - 64) * 128) >> 4);
      const unsigned long long q = head + (TILES * TILE_BYTES >> 4);
      ptx::wgmma_few_scores<false>(s[m], k, q);
#pragma unroll
      for (int i = 1; i < D / 16; i++) ptx::wgmma_few_scores<true>(s[m], k + i * (32 >> 4), q + i * (32 >> 4));
    }
    ptx::wgmma_commit();
#pragma unroll
    for (int m = 0; m < 4; m++) ptx::wgmma_wait<0>(s[m]);
    const bool counts = warp == 3 && 192 + g < block.T;
    constexpr float sign = NEGATIVE ? -1.0f : 1.0f;
#pragma unroll
    for (int c = 0; c < 2; c++) {
      s[3][0][c] = -sign * INFINITY;
      if (!counts) s[3][0][2 + c] = -sign * INFINITY;
      float most = -INFINITY;
#pragma unroll
      for (int m = 0; m < 4; m++) most = fmaxf(most, fmaxf(sign * s[m][0][c], sign * s[m][0][2 + c]));
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
      if (g == 0) exchanged()[8 * warp + 2 * t + c] = most;
    }
    meet();
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const float* const of_warps = exchanged() + 2 * t + c;
      reference[c] = fmaxf(fmaxf(of_warps[0], of_warps[8]), fmaxf(of_warps[16], of_warps[24])) * (sign * block.scale);
    }
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float x = ptx::exp2_approx(fmaf(s[m][0][2 * r], block.scale, -reference[0]));
        const float y = ptx::exp2_approx(fmaf(s[m][0][2 * r + 1], block.scale, -reference[1]));
        p[m][r] = ptx::pack_halves(x, y);
        sum[0] += x, sum[1] += y;
      }
#pragma unroll
    for (int c = 0; c < 2; c++) {
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) sum[c] += __shfl_xor_sync(~0u, sum[c], lanes);
      if (g == 0) exchanged()[32 + 8 * warp + 2 * t + c] = sum[c];
    }
    write(warp, p[0]);
    if (warp < 2) write(4 + warp, p[1]);
    multiply(0, ROUND);
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const float* const of_warps = exchanged() + 32 + 2 * t + c;
      factor[c] = __fdividef(1.0f, of_warps[0] + of_warps[8] + of_warps[16] + of_warps[24]);
    }
  }

  __device__ __forceinline__ char* place(int step) const {  // of 16 keys
    const int i = step < ROUND ? step : step - ROUND;
    return i < 4 ? block.slot(slot) + TILES * TILE_BYTES + i * 256 : block.powers() + (i - 4) * 256;
  }
  __device__ __forceinline__ void write(int step, const unsigned (&two)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; r++) reinterpret_cast<unsigned*>(place(step))[32 * r + lane] = ptx::transpose_8x8(two[r]);
  }
  // Starts products with values, of 16 keys each, once all have written their powers.
  __device__ __forceinline__ void multiply(int from, int to) {
    ptx::fence_proxy_async();
    meet();
    ptx::wgmma_fence();
#pragma unroll
    for (int i = from; i < to; i++) {
      const unsigned long long values = head + ((Q_BYTES + KEYS_BYTES + i * 2048) >> 4);
      ptx::wgmma_few_values(o, i + 1 < ALL ? values : block.last_values(slot),
                            ptx::matrix_descriptor(place(i), 128, 128), i > 0);
    }
    ptx::wgmma_commit();
  }
  // Computes the output, and writes it from `out` on, `pitch` pairs of halves apart.
  __device__ __forceinline__ void values(const float (&factor)[2], unsigned* out, int pitch) {
    ptx::wgmma_wait<0>(o);
    meet();  // no product reads the first powers any more
    if (warp >= 2) write(4 + warp, p[1]);
    write(8 + warp, p[2]);
    const unsigned last[2] = {p[3][1], 0};
    if (warp == 3) write(12, last);
    multiply(ROUND, ALL);
    ptx::wgmma_wait<0>(o);
    meet();  // nor the other powers, in whose place the next maxima are written
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const unsigned pair = ptx::transpose_8x8(ptx::pack_halves(o[0][2 * r] * factor[0], o[0][2 * r + 1] * factor[1]));
      if (TILES * 64 + g < block.T) out[g * pitch + 8 * warp + 4 * r + t] = pair;
    }
  }
};

__device__ __forceinline__ void work_on_few(const Block& block, Loader& loader, unsigned* o) {
  Ring ring;
  int phase = 0;
  for (int head = blockIdx.x; head < block.heads; head += gridDim.x, ring.next()) {
    const int slot = __shfl_sync(~0u, ring.slot, 0);  // so the compiler knows that a warp agrees
    block.wait_queries(ring, TILES);
    loader.go_ahead();
    block.wait_values(ring);
    FewQueries few{block, slot, ptx::matrix_descriptor_128b(block.slot(slot), 16, 1024), phase};
    float factor[2];
    few.powers(factor);
    const Place at = block.barriers().place[slot];
    const long long row = (long long)at.z * block.T + TILES * 64;
    few.values(factor, o + (row * block.each * D + at.x) / 2, block.each * D / 2);
    if (block.is_refilled(head)) ptx::mbarrier_arrive(block.barriers().empty + slot);
    loader.refill(head, ring);
  }
}
