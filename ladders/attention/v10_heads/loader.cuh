// One thread starts all copies.
#pragma once
#include "block.cuh"

struct Loader {
  const Block& block;
  const ptx::TensorMap &q_map, &few_map, &k_map, &more_map, &v_map;  // few queries; keys of the second part
  const bool loads;                                                  // this thread
  int begun = 1;                                                     // heads that were requested

  __device__ __forceinline__ void load(int head, int slot) const {  // heads follow each other along x or along z
    Barriers& barriers = block.barriers();
    const int x = head % block.each * D, z = head / block.each, part = block.part;
    char *const queries = block.slot(slot), *const keys = queries + Q_BYTES, *const values = keys + KEYS_BYTES;
    barriers.place[slot] = {x, z};
    for (int i = 0; i < TILES; i++) {
      ptx::mbarrier* const come = barriers.queries[slot] + i;
      ptx::mbarrier_arrive_expect_tx(come, TILE_BYTES + (i == 0 ? FIRST * 128 : 0));
      if (i == 0) ptx::tensor_load(keys, k_map, x + part, 0, z, come);
      ptx::tensor_load(queries + i * TILE_BYTES, q_map, x, 64 * i, z, come);
    }
    if (TAIL) {
      ptx::mbarrier* const come = barriers.queries[slot] + TILES;
      ptx::mbarrier_arrive_expect_tx(come, FEW * 128);
      ptx::tensor_load(queries + TILES * TILE_BYTES, few_map, x, TILES * 64, z, come);
    }
    ptx::mbarrier_arrive_expect_tx(barriers.values + slot, SECOND * 128 + KEYS_BYTES);
    ptx::tensor_load(keys + FIRST * 128, more_map, x + part, FIRST, z, barriers.values + slot);
    ptx::tensor_load(values, v_map, x + 2 * part, 0, z, barriers.values + slot);
  }
  __device__ __forceinline__ void start() const {
    ptx::tensor_prefetch(k_map);
    ptx::tensor_prefetch(q_map);
    ptx::tensor_prefetch(few_map);
    ptx::tensor_prefetch(more_map);
    ptx::tensor_prefetch(v_map);
    block.barriers().init();
    ptx::grid_wait();
    load(blockIdx.x, 0);
  }
  // Requests the next head into a slot that has not been used. If all were requested at the start, the first one would
  // arrive later.
  __device__ __forceinline__ void go_ahead() {
    const int head = blockIdx.x + begun * gridDim.x;
    if (loads && begun < SLOTS && head < block.heads) load(head, begun);
    begun++;
  }
  // Requests another head into the slot of `head`, once all have read that.
  __device__ __forceinline__ void refill(int head, const Ring& ring) const {
    if (!loads || !block.is_refilled(head)) return;
    ptx::mbarrier_wait(block.barriers().empty + ring.slot, ring.parity);
    ptx::fence_proxy_async();  // results have been written there
    load(head + SLOTS * gridDim.x, ring.slot);
  }
  __device__ __forceinline__ void work() {
    Ring ring;
    for (int head = blockIdx.x; head < block.heads; head += gridDim.x, ring.next()) {
      block.wait_queries(ring, 0);
      go_ahead();
      refill(head, ring);
    }
  }
};
