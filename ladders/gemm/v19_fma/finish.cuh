// Part of kernel.cu: the sums of groups, and of blocks that share k, are added and stored.

constexpr int PITCH = COLUMNS + 4;  // floats from row to row of partial sums
constexpr int FOURS = COLUMNS / 4;  // in a row

struct alignas(4 * sizeof(Out)) Four {
  Out part[4];
};

// Stores four sums of a row, as far as they are in c.
__device__ __forceinline__ void store_four(const float* sums, const sums::Matrix<Out>& to, int row, int column) {
  if (row >= to.m) return;
  const long long at = (long long)row * to.pitch + column;
  Four four;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    float sum = to.alpha * sums[j];
    if (to.beta != 0.0f && column + j < to.n) sum += to.beta * float(to.c0[at + j]);
    four.part[j] = Out(sum);
  }
  if (column + 4 <= to.n && to.pitch % 4 == 0) {
    *reinterpret_cast<Four*>(to.c + at) = four;
  } else {
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (column + j < to.n) to.c[at + j] = four.part[j];
  }
}

// Stores a thread's sums, if there are no others to add. Fours of its columns are adjacent.
__device__ __forceinline__ void store(const Sums& sums, const sums::Matrix<Out>& to, int row0, int column0, int down,
                                      int across) {
#pragma unroll
  for (int i = 0; i < T_ROWS; i++)
#pragma unroll
    for (int j = 0; j < T_COLUMNS; j += 4)
      store_four(&sums[i][j], to, row0 + A::row(down, i), column0 + B::row(across, j));
}

// Writes a thread's sums to the partial sums of its group.
__device__ __forceinline__ void keep(const Sums& sums, float* partial, int group, int down, int across) {
#pragma unroll
  for (int i = 0; i < T_ROWS; i++)
#pragma unroll
    for (int j = 0; j < T_COLUMNS; j++)
      partial[(group * ROWS + A::row(down, i)) * PITCH + B::row(across, j)] = sums[i][j];
}

// The sum of four partial sums of all groups, or of all blocks.
template <int parts, bool of_blocks>
__device__ __forceinline__ float4 add(float* partial) {
  float4 sum = {};
#pragma unroll
  for (int i = 0; i < parts; i++) {
    const float* const from = of_blocks ? ptx::cluster_shared(partial, i) : partial + i * ROWS * PITCH;
    const float4 four = *reinterpret_cast<const float4*>(from);
    sum.x += four.x, sum.y += four.y, sum.z += four.z, sum.w += four.w;
  }
  return sum;
}

// Adds the partial sums of all groups to those of the first one.
__device__ __forceinline__ void add_groups(float* partial) {
#pragma unroll
  for (int i = threadIdx.x; i < ROWS * FOURS; i += THREADS) {
    float* const four = partial + i / FOURS * PITCH + i % FOURS * 4;
    *reinterpret_cast<float4*>(four) = add<GROUPS, false>(four);
  }
}

// Adds the partial sums of all groups, or of all blocks, and stores them, for this block's share of the tile's rows.
__device__ __forceinline__ void store_share(float* partial, const sums::Matrix<Out>& to, int row0, int column0,
                                            int rank) {
  constexpr int rows = (ROWS + SPLIT - 1) / SPLIT;
#pragma unroll 2
  for (int i = threadIdx.x; i < rows * FOURS; i += THREADS) {
    const int row = rank * rows + i / FOURS, column = i % FOURS * 4;
    if (row >= ROWS) break;
    const float4 sum = add<(SPLIT > 1 ? SPLIT : GROUPS), (SPLIT > 1)>(partial + row * PITCH + column);
    const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
    store_four(sums, to, row0 + row, column0 + column);
  }
}
