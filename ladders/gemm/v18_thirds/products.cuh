// Part of kernel.cu: the products of a stage.

constexpr int GROUPS = COLUMNS / 8;
typedef float Sums[GROUPS][4];

// Starts the products of a third of a and one of b, for the first 32 terms of a stage (`half` is 0) or the last 32 (1).
// They are added to d, or replace it if `accumulate` is false.
__device__ __forceinline__ void multiply(Sums& d, const char* a, const char* b, int half, bool accumulate) {
  constexpr int a_next = A_LINES ? 2048 : 32, b_next = B_LINES ? 2048 : 32;  // bytes to the next 16 k
  const auto left = ptx::matrix_descriptor_128b(a, BOX_BYTES, 1024);
  const auto right = ptx::matrix_descriptor_128b(b, BOX_BYTES, 1024);
#pragma unroll
  for (int i = 2 * half; i < 2 * half + 2; i++)
    ptx::wgmma_m64k16<COLUMNS, ptx::Bfloat, A_LINES, B_LINES>(d, left + (i * a_next >> 4), right + (i * b_next >> 4),
                                                              accumulate || i > 2 * half);
}

__device__ __forceinline__ void add(Sums& total, const Sums& sum) {
#pragma unroll
  for (int i = 0; i < GROUPS; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) total[i][j] += sum[i][j];
}

// Adds the sums of `count` stages to total.
__device__ __forceinline__ void sum_up(Sums& total, const char* memory, ptx::mbarrier* full, ptx::mbarrier* empty,
                                       int count) {
  Sums high, low;  // of products of two first thirds, and of the others
  Stage stage;
  int before = 0;  // the previous stage
  // Lets the threads that split write to a stage again.
  auto release = [&](int index) {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty + index);
  };
#pragma unroll 1
  for (int step = 0; step < count; step++, stage.next()) {
    const char *const a = memory + stage.index * STAGE_BYTES, *const b = a + A_BOXES * BOX_BYTES;
    ptx::mbarrier_wait(full + stage.index, stage.parity);  // its thirds are written
#pragma unroll
    for (int half = 0; half < 2; half++) {
      ptx::wgmma_fence();
      multiply(high, a, b, half, false);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // all earlier products are complete
      if (half == 0 && step > 0) release(before);
#pragma unroll
      for (int a_third = 0; a_third < 3; a_third++)
#pragma unroll
        for (int b_third = 0; b_third < 3 - a_third; b_third++)
          if (a_third + b_third > 0)
            multiply(low, a + a_third * THIRD_BYTES, b + b_third * THIRD_BYTES, half,
                     step > 0 || half > 0 || a_third > 0 || b_third > 1);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>(high);
      add(total, high);  // rounded, not truncated
    }
    before = stage.index;
  }
  ptx::wgmma_wait<0>(low);
  add(total, low);
}
