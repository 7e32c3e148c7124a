// A part of implicit.cuh: the sums of a warpgroup, from the bias to their places in y.

// Two sums of this thread plus the residual, as halves.
__device__ __forceinline__ unsigned finish(const Problem& p, float low, float high, unsigned residual) {
  if (p.residual) {
    const float2 more = ptx::unpack_halves(residual);
    low += more.x, high += more.y;
  }
  if (p.relu) low = fmaxf(low, 0.0f), high = fmaxf(high, 0.0f);
  return ptx::pack_halves(low, high);
}

// Computes the sums of 64 windows: the bias and all steps.
template <class T>
__device__ __forceinline__ void multiply(float (&d)[T::GROUPS][4], const char* memory, Barriers<T>& barriers,
                                         Stage<T::STAGES>& stage, const float* bias, int first, int last) {
  const int lane = threadIdx.x % 32, warpgroup = threadIdx.x / 128;
  int before = 0;  // the stage of the previous step
#pragma unroll
  for (int i = 0; i < T::GROUPS; i++) {
    const float2 two = first == 0 ? *reinterpret_cast<const float2*>(bias + 8 * i + lane % 4 * 2) : float2{0, 0};
    d[i][0] = d[i][2] = two.x, d[i][1] = d[i][3] = two.y;
  }
#pragma unroll 1
  for (int step = first; step < last; step++, stage.next()) {
    const char* const tile = memory + stage.index * T::STAGE_BYTES;
    const auto left = ptx::matrix_descriptor_128b(tile + warpgroup * 64 * 128, 0, 1024);
    const auto right = ptx::matrix_descriptor_128b(tile + T::A_BYTES, 0, 1024);
    ptx::mbarrier_wait(barriers.full + stage.index, stage.parity);
    ptx::wgmma_fence();
#pragma unroll
    for (int j = 0; j < STEP / 16; j++)
      ptx::wgmma_m64k16<T::COLUMNS, ptx::Half, false, false>(d, left + 2 * j, right + 2 * j, true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();  // the previous step is complete: its stage may be filled again
    if (step > first && lane == 0) ptx::mbarrier_arrive(barriers.empty + before);
    before = stage.index;
  }
  ptx::wgmma_wait<0>(d);
  if (lane == 0) ptx::mbarrier_arrive(barriers.empty + before);
}

// Stores a warp's 16 rows through its part of shared memory, to which their residual was loaded.
template <class T>
__device__ __forceinline__ void store(const Problem& p, const Arrays& at, const float (&d)[T::GROUPS][4], char* own,
                                      int row, int column) {
  const int lane = threadIdx.x % 32, line = lane / 4;
#pragma unroll
  for (int i = 0; i < T::GROUPS; i++) {
    char* const eight = own + i / 8 * T::PIECE_BYTES + line * 128 + ((i % 8) ^ line) * 16 + lane % 4 * 4;
    unsigned *const upper = reinterpret_cast<unsigned*>(eight), *const lower = upper + 8 * 128 / 4;
    *upper = finish(p, d[i][0], d[i][1], p.residual ? *upper : 0);
    *lower = finish(p, d[i][2], d[i][3], p.residual ? *lower : 0);
  }
  ptx::fence_proxy_async();
  __syncwarp();
  if (lane == 0 && row < p.windows) {
#pragma unroll
    for (int i = 0; i < T::PIECES; i++) ptx::tensor_store(at.y_map, column + 64 * i, row, own + i * T::PIECE_BYTES);
    ptx::bulk_commit();
  }
}

// The blocks of a cluster send each other parts of their sums. Each block adds up its own columns and writes them.
template <class T>
__device__ __forceinline__ void add_up(const Problem& p, const Arrays& at, float (&d)[T::GROUPS][4], float4* slots,
                                       ptx::mbarrier* landed, int rank, int row, int column) {
  const int lane = threadIdx.x % 32;
  ptx::cluster_wait();  // the other blocks have started, and their mbarriers are initialised
#pragma unroll
  for (int block = 0; block < T::SPLIT; block++) {
    if (block == rank) continue;
    float4* const to = ptx::cluster_shared(slots + (rank - (rank > block)) * T::PART * T::SLOT + threadIdx.x, block);
    ptx::mbarrier* const there = ptx::cluster_shared(landed, block);
#pragma unroll
    for (int i = 0; i < T::PART; i++) {
      const float (&four)[4] = d[block * T::PART + i];
      ptx::store_async(&to[i * T::SLOT].x, make_float4(four[0], four[1], four[2], four[3]), there);
    }
  }
  float sum[T::PART][4];
#pragma unroll
  for (int block = 0; block < T::SPLIT; block++)
    if (block == rank)
#pragma unroll
      for (int i = 0; i < T::PART * 4; i++) sum[i / 4][i % 4] = d[block * T::PART + i / 4][i % 4];
  const int upper = row + lane / 4;
  const long long place = ((long long)upper * p.K + column + rank * T::PART * 8 + lane % 4 * 2) / 2;
  unsigned added[T::PART][2] = {};
  if (p.residual) {
    ptx::grid_wait();
#pragma unroll
    for (int i = 0; i < T::PART; i++) {
      if (upper < p.windows) added[i][0] = at.residual[place + 4 * i];
      if (upper + 8 < p.windows) added[i][1] = at.residual[place + 4 * i + 4ll * p.K];
    }
  }
  ptx::mbarrier_wait(landed, 0);
#pragma unroll
  for (int other = 0; other < T::SPLIT - 1; other++)
#pragma unroll
    for (int i = 0; i < T::PART; i++) {
      const float4 four = slots[(other * T::PART + i) * T::SLOT + threadIdx.x];
      sum[i][0] += four.x, sum[i][1] += four.y, sum[i][2] += four.z, sum[i][3] += four.w;
    }
#pragma unroll
  for (int i = 0; i < T::PART; i++) {
    if (upper < p.windows) at.y[place + 4 * i] = finish(p, sum[i][0], sum[i][1], added[i][0]);
    if (upper + 8 < p.windows) at.y[place + 4 * i + 4ll * p.K] = finish(p, sum[i][2], sum[i][3], added[i][1]);
  }
}
