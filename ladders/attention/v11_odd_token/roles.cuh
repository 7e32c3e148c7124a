// The warps that do not multiply tiles: one starts copies, and three compute the odd query.
#pragma once
#include "odd_query.cuh"

struct Maps {
  const ptx::TensorMap &q, &k, &v, &odd_q, &odd_k, &odd_v;
};

// The work of all blocks in units of about the same size: items of three tiles, or the last tiles of two heads, which
// are items that take half of the time.
struct Units {
  static constexpr int HEADS = SPLIT ? 2 : 1;
  int tiles, whole, places, heads, count;
  __device__ __forceinline__ Units(int full, int heads) : tiles(full / 64), heads(heads) {
    whole = tiles / GROUP_COUNT;
    places = HEADS * whole + SPLIT;
    count = (heads + HEADS - 1) / HEADS * places;
  }
  // Units change places from round to round, so that no block gets only one kind.
  __device__ __forceinline__ int place(int unit) const {
    return (unit % places + unit / places * places / (int)gridDim.x) % places;
  }
};

// One thread starts all copies, and computes the data of an item for the other warps.
__device__ __forceinline__ void load(const Block& block, const Units units, const Maps& maps) {
  Barriers& barriers = block.barriers;
  Ring<STAGES> ring;
  Ring<Q_STAGES> q_ring;
  ptx::tensor_prefetch(maps.q);
  ptx::tensor_prefetch(maps.k);
  ptx::tensor_prefetch(maps.v);
  const int full = block.T, blocks = blocks_for(full, 0), part = block.lie.part;
  auto load_item = [&](int head, int first, int groups) {
    const int x = block.lie.x(head), z = block.lie.z(head);
    ptx::mbarrier* const ready = barriers.q_full + q_ring.stage;
    char* const token = block.few + q_ring.stage * ODD_BYTES;
    ptx::mbarrier_wait(barriers.q_empty + q_ring.stage, q_ring.parity ^ 1);
    block.told[q_ring.stage] = {x, z, Item::pack(first, groups)};
    ptx::mbarrier_arrive_expect_tx(ready, QUERIES_BYTES + 3 * 128);
    ptx::tensor_load(block.queries + q_ring.stage * QUERIES_BYTES, maps.q, x, first * 64, z, ready);
    ptx::tensor_load(token + ODD_KEY, maps.odd_k, x + part, full, z, ready);
    ptx::tensor_load(token + ODD_VALUE, maps.odd_v, x + 2 * part, full, z, ready);
    ptx::tensor_load(token + ODD_QUERY, maps.odd_q, x, full, z, ready);
    q_ring.next();
    for (int j = 0; j < blocks; j++, ring.next()) {
      ptx::mbarrier* const come = barriers.full + ring.stage;
      ptx::mbarrier_wait(barriers.empty + ring.stage, ring.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(come, 2 * KEYS_BYTES);
      ptx::tensor_load(block.keys(ring.stage), maps.k, x + part, j * BLOCK, z, come);
      ptx::tensor_load(block.values(ring.stage), maps.v, x + 2 * part, j * BLOCK, z, come);
    }
  };
  ptx::grid_wait();
  for (int unit = blockIdx.x; unit < units.count; unit += gridDim.x) {
    const int head = unit / units.places * Units::HEADS, place = units.place(unit);
    if (place < Units::HEADS * units.whole) {
      if (head + place / units.whole < units.heads)
        load_item(head + place / units.whole, place % units.whole * GROUP_COUNT, GROUP_COUNT);
    } else {
      for (int i = head; i < min(head + 2, units.heads); i++) load_item(i, units.tiles - 1, 1);
    }
  }
  ptx::mbarrier_wait(barriers.q_empty + q_ring.stage, q_ring.parity ^ 1);
  block.told[q_ring.stage] = {};
  ptx::mbarrier_arrive(barriers.q_full + q_ring.stage);
}

// The odd query, computed in a head's first item by TAIL_WARPS warps, of which this is one. All of them read all items,
// because the producer waits for them.
__device__ __forceinline__ void work_on_query(const Block& block, int warp, half* o) {
  State* const states = reinterpret_cast<State*>(block.few + Q_STAGES * ODD_BYTES);
  Barriers& barriers = block.barriers;
  Ring<STAGES> ring;
  Ring<Q_STAGES> q_ring;
  const int full = block.T, blocks = blocks_for(full, 0);
  int parity = 0;
  auto arrive = [&](ptx::mbarrier* barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
  };
  for (;; q_ring.next()) {
    ptx::mbarrier_wait(barriers.q_full + q_ring.stage, q_ring.parity);
    const int packed = read_by_one(block.told[q_ring.stage].packed);
    if (Item::tiles(packed) == 0) break;
    const bool mine = Item::first(packed) == 0;
    OddQuery query;
    if (mine) query.start(block.few + q_ring.stage * ODD_BYTES, warp == 0, block.scale);
    const int x = read_by_one(block.told[q_ring.stage].x), z = read_by_one(block.told[q_ring.stage].z);
    arrive(barriers.q_empty + q_ring.stage);
    for (int j = 0; j < blocks; j++, ring.next()) {
      const int at = warp * STEP;
      ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
      if (mine && at < min(full - j * BLOCK, BLOCK))
        query.step(block.keys(ring.stage) + at * 128, block.values(ring.stage) + at * 128, block.scale);
      arrive(barriers.empty + ring.stage);
    }
    if (!mine) continue;
    if (warp > 0) {
      ptx::mbarrier_wait(&barriers.taken, parity ^ 1);
      query.give(states[warp - 1]);
      ptx::mbarrier_arrive(&barriers.given);
    } else {
      ptx::mbarrier_wait(&barriers.given, parity);
      for (int i = 0; i < TAIL_WARPS - 1; i++) query.take(states[i]);
      ptx::mbarrier_arrive(&barriers.taken);
      const int pitch = block.lie.each * D;
      query.put(o + ((long long)z * (full + 1) + full) * pitch + x);
    }
    parity ^= 1;
  }
}
