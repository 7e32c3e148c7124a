// Rows of c that start anywhere, from sums in shared memory.
#pragma once
#include "tiles.cuh"

namespace rows_out {

constexpr int WARPS = 4, PITCH = COLUMNS + 8;  // warps that store; floats from row to row of sums

// Adds the sums of all blocks of a cluster, which lie in `sums`, and stores a block's share of the rows. A warp writes
// a row; a lane writes two elements of 16 bits that share an aligned word. If a row starts at an odd place, the last
// lane has the first element.
__device__ __forceinline__ void store(float* sums, const sums::Matrix<Out>& to, int row0, int column0, int rank) {
  constexpr bool words = sizeof(Out) == 2;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, here = to.n - column0;
  const float* of_block[SPLIT];
#pragma unroll
  for (int i = 0; i < SPLIT; i++) of_block[i] = SPLIT > 1 ? ptx::cluster_shared(sums, i) : sums;
#pragma unroll 4
  for (int i = warp; i < ROWS / SPLIT; i += WARPS) {
    const int row = rank * (ROWS / SPLIT) + i;
    if (row0 + row >= to.m) break;
    const long long at = (long long)(row0 + row) * to.pitch + column0;
    Out* const c = to.c + at;
    const int odd = words ? int(reinterpret_cast<size_t>(c) / 2 % 2) : 0;
    const int first = words ? 2 * lane + odd : lane, second = words ? (first + 1) % COLUMNS : lane + 32;
    auto sum = [&](int column) {
      float all = 0.0f;
#pragma unroll
      for (int j = 0; j < SPLIT; j++) all += of_block[j][row * PITCH + column];
      all *= to.alpha;
      return Out(to.beta != 0.0f && column < here ? all + to.beta * float(to.c0[at + column]) : all);
    };
    const sums::Pair<Out> pair{sum(first), sum(second)};
    if (words && second > first && second < here) {
      *reinterpret_cast<sums::Pair<Out>*>(c + first) = pair;
    } else {
      if (first < here) c[first] = pair.low;
      if (second < here) c[second] = pair.high;
    }
  }
}

}  // namespace rows_out
