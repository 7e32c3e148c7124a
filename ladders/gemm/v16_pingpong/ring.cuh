// Part of kernel.cu: what the roles wait for.

struct Ring {
  ptx::mbarrier full_a[STAGES], full_b[STAGES], empty[STAGES];
  ptx::mbarrier read[SHARE > 1 ? STAGES : 1];    // by the warps of this block
  ptx::mbarrier turn[PLAYERS];                   // the other warpgroup has requested all products of its tile
  ptx::mbarrier staged[PLAYERS], free[PLAYERS];  // pieces of c: written by a warpgroup, and read by the copy engine
  ptx::mbarrier done;                            // all products of the block

  // Each thread that loads initialises what it waits for in its first round, so that it can start at once.
  __device__ __forceinline__ void init_full(ptx::mbarrier* full) {
    for (int i = 0; i < STAGES; i++) ptx::mbarrier_init(full + i, 1);
    ptx::fence_mbarrier_init();
  }
  __device__ __forceinline__ void init() {
    constexpr int warps = TEAM * 4, readers = SHARE_A + SHARE_B - 1;  // blocks that receive what this one loads
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(empty + i, SHARE > 1 ? readers : warps);
      if (SHARE > 1) ptx::mbarrier_init(read + i, warps);
    }
    for (int i = 0; i < PLAYERS; i++) {
      ptx::mbarrier_init(turn + i, 4);
      ptx::mbarrier_init(staged + i, 4);
      ptx::mbarrier_init(free + i, 1);
    }
    ptx::mbarrier_init(&done, PLAYERS * 4);
    if (SHARE > 1) ptx::fence_mbarrier_init();  // other blocks arrive there
  }
};
