// The product of a vector and a matrix whose lines are columns: for each line, the sum over k of x[k][line] v[k].
#pragma once
#include "tiles.cuh"
#include "../v8_final/vector.cuh"

// Adjacent lines, k after k. A cluster has 64 lines, and its blocks share k. In a block, a row of 8 threads has 8 lines
// per thread, and 32 such rows share the block's k.
extern "C" __global__ void __launch_bounds__(COPIERS)
    sum_columns(const In* __restrict__ x, const In* v, const Out* c0, Out* c, int lines, int k, int pitch, int v_step,
                int c_step, long long x_entry, long long v_entry, long long c_entry, float alpha, float beta) {
  constexpr int THREAD_ROWS = COPIERS / 8, DEPTH = 16;  // rows that a thread loads before it adds any
  __shared__ float of_rows[THREAD_ROWS][64], of_block[64];
  const int part = threadIdx.x % 8, thread_row = threadIdx.x / 8, rank = blockIdx.x % PARTS_OF_K;
  const int line = blockIdx.x / PARTS_OF_K * 64 + 8 * part, entry = blockIdx.y;
  const int share = (k + PARTS_OF_K - 1) / PARTS_OF_K, from = rank * share, to = min(k, from + share);
  ptx::grid_wait();
  const Vector vector{v + entry * v_entry, c0 + entry * c_entry, c + entry * c_entry, v_step, c_step, alpha, beta};
  const In* const columns = x + entry * x_entry + line;
  float sum[8] = {};
  const bool whole = line + 8 <= lines;
#pragma unroll 1
  for (int first = from + thread_row; whole && first < to; first += THREAD_ROWS * DEPTH) {
    uint4 found[DEPTH];
    float factor[DEPTH];
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
      const int at = first + i * THREAD_ROWS;
      const bool inside = at < to;
      found[i] = inside ? *reinterpret_cast<const uint4*>(columns + (long long)at * pitch) : make_uint4(0, 0, 0, 0);
      factor[i] = inside ? float(vector.v[(long long)at * v_step]) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
      const Eight& eight = reinterpret_cast<const Eight&>(found[i]);
#pragma unroll
      for (int j = 0; j < 8; j++) sum[j] += float(eight.part[j]) * factor[i];
    }
  }
#pragma unroll 4
  for (int at = from + thread_row; !whole && at < to; at += THREAD_ROWS) {
    const float factor = float(vector.v[(long long)at * v_step]);
    const In* const eight = columns + (long long)at * pitch;
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (line + i < lines) sum[i] += float(eight[i]) * factor;
  }
#pragma unroll
  for (int i = 0; i < 8; i++) of_rows[thread_row][8 * part + i] = sum[i];
  __syncthreads();
  float all = 0.0f;
  if (threadIdx.x < 64) {
    for (int i = 0; i < THREAD_ROWS; i++) all += of_rows[i][threadIdx.x];
    of_block[threadIdx.x] = all;
  }
  if (PARTS_OF_K > 1) ptx::cluster_sync();
  if (rank == 0 && threadIdx.x < 64 && line - 8 * part + threadIdx.x < lines) {
    for (int block = 1; block < PARTS_OF_K; block++) all += ptx::cluster_shared(of_block, block)[threadIdx.x];
    vector.put(line - 8 * part + threadIdx.x, all);
  }
  if (PARTS_OF_K > 1) ptx::cluster_arrive_relaxed();
  if (PARTS_OF_K > 1) ptx::cluster_wait();  // block 0 has read the others
}
