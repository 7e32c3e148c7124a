// Part of kernel.cu: the mbarriers of the ring of stages.

// Each thread that loads initialises what it waits for in its first round, so that it can start at once. The copy
// engine sees an mbarrier after fence_mbarrier_init(), which is faster than a fence of all that the proxies share.
struct Ring {
  ptx::mbarrier full_a[STAGES], full_b[STAGES], empty[STAGES];
  ptx::mbarrier turn;    // of warpgroup 1, of a wide tile
  ptx::mbarrier landed;  // sums of other blocks

  __device__ __forceinline__ void init_a() {
    for (int i = 0; i < STAGES; i++) ptx::mbarrier_init(full_a + i, 1);
    ptx::fence_mbarrier_init();
  }
  __device__ __forceinline__ void init_b() {
    for (int i = 0; i < STAGES; i++) ptx::mbarrier_init(full_b + i, 1);
    ptx::fence_mbarrier_init();
  }
  __device__ __forceinline__ void init_empty() {
    constexpr int readers = SHARE_A + SHARE_B - 1;  // blocks that receive what this one loads
    for (int i = 0; i < STAGES; i++) ptx::mbarrier_init(empty + i, readers * WARPGROUPS * 4);  // warps that multiply
    if (WIDE) ptx::mbarrier_init(&turn, 4);                                                    // warps of warpgroup 0
    if (SPLIT > 1) {
      ptx::mbarrier_init(&landed, 1);
      ptx::mbarrier_arrive_expect_tx(&landed, (SPLIT - 1) * PART * SLOT * 16);
    }
    if (SPLIT > 1 || SHARE > 1) ptx::fence_mbarrier_init();  // other blocks arrive there
  }
};
