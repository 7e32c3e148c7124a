// Part of kernel.cu: the sums of blocks that share k.

// The blocks of a cluster that share k hand each other parts of their sums, and each one adds up its own part.
__device__ __forceinline__ void add_up(float (&d)[GROUPS][4], float (&sum)[PART][4], float4* slots,
                                       ptx::mbarrier* landed, int rank) {
#pragma unroll
  for (int block = 0; block < SPLIT; block++) {
    if (block == rank) {
#pragma unroll
      for (int i = 0; i < PART * 4; i++) sum[i / 4][i % 4] = d[block * PART + i / 4][i % 4];
      continue;
    }
    float4* const to = ptx::cluster_shared(slots + (rank - (rank > block)) * PART * SLOT + threadIdx.x, block);
    ptx::mbarrier* const there = ptx::cluster_shared(landed, block);
#pragma unroll
    for (int i = 0; i < PART; i++) {
      const float (&four)[4] = d[block * PART + i];
      ptx::store_async(&to[i * SLOT].x, make_float4(four[0], four[1], four[2], four[3]), there);
    }
  }
  ptx::mbarrier_wait(landed, 0);
#pragma unroll
  for (int other = 0; other < SPLIT - 1; other++)
#pragma unroll
    for (int i = 0; i < PART; i++) {
      const float4 four = slots[(other * PART + i) * SLOT + threadIdx.x];
      sum[i][0] += four.x, sum[i][1] += four.y, sum[i][2] += four.z, sum[i][3] += four.w;
    }
}
