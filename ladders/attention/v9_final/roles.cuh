// The warps that do not multiply tiles: one starts copies, and three compute the tail.
#pragma once
#include "block.cuh"

// One thread starts all copies, and computes the data of an item for the other warps.
__device__ __forceinline__ void load(const Block& block, const ptx::TensorMap& q_map, const ptx::TensorMap& k_map,
                                     const ptx::TensorMap& v_map, const ptx::TensorMap& tail_map) {
  Barriers& barriers = block.barriers;
  const Items& items = block.items;
  Ring<STAGES> ring;
  Ring<Q_STAGES> q_ring;
  ptx::tensor_prefetch(q_map);
  ptx::tensor_prefetch(k_map);
  ptx::tensor_prefetch(v_map);
  ptx::grid_wait();
  for (int item = blockIdx.x; item < items.count; item += gridDim.x, q_ring.next()) {
    const int head = items.head(item), x = block.lie.x(head), z = block.lie.z(head), first = items.first(item);
    const int groups = items.groups(item), blocks = blocks_for(block.T, first + groups), part = block.lie.part;
    const bool tail = items.tail(item);
    ptx::mbarrier* const ready = barriers.q_full + q_ring.stage;
    ptx::mbarrier_wait(barriers.q_empty + q_ring.stage, q_ring.parity ^ 1);
    block.told[q_ring.stage] = {x, z, Item::pack(first, groups)};
    ptx::mbarrier_arrive_expect_tx(ready, QUERIES_BYTES + (tail ? TAIL_BYTES : 0));
    if (tail) ptx::tensor_load(block.few + q_ring.stage * TAIL_BYTES, tail_map, x, items.tiles * 64, z, ready);
    for (int i = 0; i < PARTS; i++)
      ptx::tensor_load(block.queries + q_ring.stage * QUERIES_BYTES + i * Q_PART_BYTES, q_map, x + 64 * i, first * 64,
                       z, ready);
    for (int j = 0; j < blocks; j++, ring.next()) {
      ptx::mbarrier* const come = barriers.full + ring.stage;
      char *const keys = block.keys(ring.stage), *const values = block.values(ring.stage);
      ptx::mbarrier_wait(barriers.empty + ring.stage, ring.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(come, 2 * KEYS_BYTES);
      for (int i = 0; i < PARTS; i++) {
        ptx::tensor_load(keys + i * (BLOCK * 128), k_map, x + part + 64 * i, j * BLOCK, z, come);
        ptx::tensor_load(values + i * (BLOCK * 128), v_map, x + 2 * part + 64 * i, j * BLOCK, z, come);
      }
    }
  }
  ptx::mbarrier_wait(barriers.q_empty + q_ring.stage, q_ring.parity ^ 1);
  block.told[q_ring.stage] = {};
  ptx::mbarrier_arrive(barriers.q_full + q_ring.stage);
}

// The odd queries, computed by TAIL_WARPS warps, of which this is one. All of them read all items, because the producer
// waits for them.
__device__ __forceinline__ void work_on_tail(const Block& block, int warp, unsigned* o) {
  typedef float State[STATE][32];
  State* const states = reinterpret_cast<State*>(block.few + Q_STAGES * TAIL_BYTES);
  Barriers& barriers = block.barriers;
  Ring<STAGES> ring;
  Ring<Q_STAGES> q_ring;
  const int T = block.T, blocks = blocks_for(T, 0);
  int parity = 0, share = warp;
  auto arrive = [&](ptx::mbarrier* barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
  };
  for (;; q_ring.next()) {
    ptx::mbarrier_wait(barriers.q_full + q_ring.stage, q_ring.parity);
    const int packed = read_by_one(block.told[q_ring.stage].packed);
    if (Item::tiles(packed) == 0) break;
    const bool mine = Item::first(packed) + GROUP_COUNT >= block.items.tiles;
    Tail tail;
    if (mine) tail.start(block.few + q_ring.stage * TAIL_BYTES);
    const int x = read_by_one(block.told[q_ring.stage].x), z = read_by_one(block.told[q_ring.stage].z);
    arrive(barriers.q_empty + q_ring.stage);
    for (int j = 0; j < blocks; j++, ring.next()) {
      const char *const keys = block.keys(ring.stage), *const values = block.values(ring.stage);
      ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
      const int valid = mine ? min(T - j * BLOCK, BLOCK) : 0;
#pragma unroll 1
      for (int at = share * 16; at < valid; at += TAIL_WARPS * 16) tail.step(keys, values, at, valid - at, block.scale);
      if (++share == TAIL_WARPS) share = 0;  // another warp starts with the first 16 keys of the next block
      arrive(barriers.empty + ring.stage);
    }
    if (!mine) continue;
    if (warp > 0) {
      ptx::mbarrier_wait(&barriers.taken, parity ^ 1);
      tail.give(states[warp - 1]);
      ptx::mbarrier_arrive(&barriers.given);
    } else {
      ptx::mbarrier_wait(&barriers.given, parity);
      for (int i = 0; i < TAIL_WARPS - 1; i++) tail.take(states[i]);
      ptx::mbarrier_arrive(&barriers.taken);
      const int row = block.items.tiles * 64, pitch = block.lie.each * D;
      tail.put(o + (((long long)z * T + row) * pitch + x) / 2, T - row, pitch / 2);
    }
    parity ^= 1;
  }
}
