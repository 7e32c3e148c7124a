// Part of kernel.cu: the sums of blocks that share k are added and stored.

constexpr int PITCH = COLUMNS + 8;  // floats from row to row of partial sums
constexpr int FOURS = COLUMNS / 4;  // in a row

// Writes the partial sums of a warp, 16 rows, to shared memory.
__device__ __forceinline__ void keep(const Sums& total, float* partial) {
  const int row = (threadIdx.x - SPLITTERS) / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < GROUPS; i++)
#pragma unroll
    for (int h = 0; h < 2; h++)
      *reinterpret_cast<float2*>(partial + (row + 8 * h) * PITCH + 8 * i + column) =
          make_float2(total[i][2 * h], total[i][2 * h + 1]);
}

struct alignas(4 * sizeof(Out)) Four {
  Out part[4];
};

// Adds the partial sums of all blocks and stores them, for this block's share of the tile's rows. Each block has
// partial sums of the whole tile.
__device__ __forceinline__ void store(float* partial, const Operands& x, const sums::Matrix<Out>& to, int entry,
                                      int row0, int column0, int rank) {
  constexpr int rows = (ROWS + SPLIT - 1) / SPLIT;
#pragma unroll 1
  for (int i = threadIdx.x; i < rows * FOURS; i += THREADS) {
    const int in_tile = rank * rows + i / FOURS, row = row0 + in_tile, column = column0 + i % FOURS * 4;
    if (in_tile >= ROWS || row >= to.m || column >= to.n) continue;
    float sum[4] = {};
#pragma unroll
    for (int block = 0; block < SPLIT; block++) {
      const float* from = partial + in_tile * PITCH + i % FOURS * 4;
      if constexpr (SPLIT > 1) from = ptx::cluster_shared(from, block);
      const float4 four = *reinterpret_cast<const float4*>(from);
      sum[0] += four.x, sum[1] += four.y, sum[2] += four.z, sum[3] += four.w;
    }
    const long long at = (long long)row * to.pitch + column;
    Four four;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      if (column + j >= to.n) break;
      sum[j] *= 1.0f / (SCALE * SCALE);
      if (!isfinite(sum[j])) sum[j] = plain(x, entry, row, column + j);
      sum[j] *= to.alpha;
      if (to.beta != 0.0f) sum[j] += to.beta * float(to.c0[at + j]);
      four.part[j] = Out(sum[j]);
    }
    if (column + 4 <= to.n && to.pitch % 4 == 0) {
      *reinterpret_cast<Four*>(to.c + at) = four;
    } else {
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (column + j < to.n) to.c[at + j] = four.part[j];
    }
  }
}
