// What a block does: its memory, its mbarriers, and the roles of its warps.
#pragma once
#include "warpgroup.cuh"

// The work of a block: `heads` of `full` tokens and the odd one.
template <class Tile>
__device__ __forceinline__ void attend(const Maps& maps, const ptx::TensorMap& o_map, half* o, int full, int heads,
                                       const Heads& lie, float scale) {
  extern __shared__ __align__(1024) char memory[];  // stages of keys and values; queries, and results in their place
  __shared__ Barriers barriers;
  __shared__ Merges merges;
  __shared__ Item told[Q_STAGES];
  const int lane = threadIdx.x % 32;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  char* const queries = memory + STAGES * 2 * KEYS_BYTES;
  char* const tokens = queries + Q_STAGES * QUERIES_BYTES;
  const Block block{Items(full, heads), lie, memory, queries, tokens, barriers, told, full, scale};
  if (threadIdx.x == 0) {
    barriers.init();
    for (int i = 0; i < GROUP_COUNT - 1; i++) ptx::mbarrier_init(merges.done + i, 128);
    ptx::fence_proxy_async();
  }
  if (threadIdx.x < Q_STAGES * ODD_BYTES / 16) {  // the other keys of the odd key's product
    reinterpret_cast<uint4*>(tokens)[threadIdx.x] = uint4{};
    ptx::fence_proxy_async();
  }
  __syncthreads();  // the mbarriers are initialised

  if (group == GROUP_COUNT) {
    ptx::setmaxnreg_dec<FEWER>();
    const int warp = threadIdx.x / 32 - GROUP_COUNT * 4;
    if (warp == 0 && lane == 0) load(block, {full, heads}, maps);
    if (warp > 0) work_on_query(block, warp - 1, o);
    return;
  }
  ptx::setmaxnreg_inc<MORE>();
  Warpgroup<Tile>(block, merges, group).work(o_map);
}
