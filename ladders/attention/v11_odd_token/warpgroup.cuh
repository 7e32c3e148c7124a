// The work of a warpgroup that multiplies. `Tile` is what a warpgroup keeps of its 64 queries.
#pragma once
#include "roles.cuh"
#include "turns.cuh"

// What the warpgroups of a block share when they split a tile: states of a warpgroup that the next one adds to its own.
struct Merges {
  ptx::mbarrier done[GROUP_COUNT - 1];
  float4 ends[SPLIT ? Q_STAGES : 1][128];
};

template <class Tile>
struct Warpgroup {
  const Block& block;
  Merges& merges;
  Barriers& barriers;
  const int group, lane, warp_rows, blocks;
  const unsigned long long queries_at, tokens_at, odd_values_at;
  Tile rows;
  Turns turn;
  Ring<Q_STAGES> q_ring;
  Place ring, ahead;      // the block of keys whose scores are computed, and the next one
  bool come = false;      // whether an early test found that the next block has come
  int merge_parity = 0;   // of the tiles that were split
  int stored = -1;        // the stage of queries whose results are being copied
  int tiles, next_tiles;  // of the current item and the next one; a single tile is shared
  Item item;              // the item that is finished; only lane 0 reads it

  __device__ __forceinline__ Warpgroup(const Block& block, Merges& merges, int group)
      : block(block),
        merges(merges),
        barriers(block.barriers),
        group(group),
        lane(threadIdx.x % 32),
        warp_rows(threadIdx.x / 32 % 4 * 16),
        blocks(blocks_for(block.T, 0)),
        queries_at(ptx::matrix_descriptor_128b(block.queries, 16, 1024)),
        tokens_at(ptx::matrix_descriptor_128b(block.few + ODD_KEY, 16, 1024)),
        odd_values_at(ptx::matrix_descriptor_128b(block.few + ODD_VALUE, BLOCK * 128, 0)),
        turn{block.barriers.turn, group},
        ring(ptx::matrix_descriptor_128b(block.memory, 16, 1024),
             ptx::matrix_descriptor_128b(block.memory + KEYS_BYTES, BLOCK * 128, 1024)),
        ahead(ring) {}

  __device__ __forceinline__ void arrive(ptx::mbarrier* barrier) {
    if (lane == 0) ptx::mbarrier_arrive(barrier);
  }
  // In a split tile, each warpgroup has every third block of keys.
  __device__ __forceinline__ bool split() const { return SPLIT && tiles == 1; }
  __device__ __forceinline__ int tile_at(int stage) const {
    return stage * QUERIES_BYTES + (split() ? 0 : group * 8192);
  }

  __device__ __forceinline__ void ask_block() {
    ahead = ring;
    ahead.next();
    come = ptx::mbarrier_test_wait(barriers.full + ahead.stage, ahead.parity);
  }
  __device__ __forceinline__ void wait_block() {
    if (!come) ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
    come = false;
  }
  // Releases blocks of keys that other warpgroups process.
  __device__ __forceinline__ void skip(int count) {
    if (count > 0) come = false;
    for (; count > 0; count--, ring.next()) {
      ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
      arrive(barriers.empty + ring.stage);
    }
  }

  __device__ __forceinline__ void look(Ring<Q_STAGES> at) {
    ptx::mbarrier_wait(barriers.q_full + at.stage, at.parity);
    next_tiles = Item::tiles(read_by_one(block.told[at.stage].packed));
  }
  __device__ __forceinline__ void look_ahead() {
    Ring<Q_STAGES> at = q_ring;
    at.next();
    look(at);
  }
  // Releases the place of queries whose results have been copied from there.
  __device__ __forceinline__ void release() {
    if (stored < 0) return;
    if (lane == 0) {
      ptx::bulk_wait_read<0>();
      ptx::mbarrier_arrive(barriers.q_empty + stored);
    }
  }

  template <int keys>
  __device__ __forceinline__ void scores() {
    rows.template times_keys<keys>(queries_at + (tile_at(q_ring.stage) >> 4), ring.keys);
  }

  // The first scores of the first item, without other products.
  __device__ __forceinline__ void start() {
    if (split()) skip(group);
    wait_block();
    turn.wait();
    ptx::wgmma_fence();
    scores<BLOCK>();
    ptx::wgmma_commit();
    turn.pass();
    ask_block();
    ptx::wgmma_wait<0>(rows.s);
  }

  // The scores of the next block, together with the values of the previous block.
  template <int keys>
  __device__ __forceinline__ void round(bool last) {
    const Place before = ring;
    ring = ahead;
    if (split()) skip(GROUP_COUNT - 1);
    wait_block();
    turn.wait();
    ptx::wgmma_fence();
    scores<keys>();
    rows.template plus_values<BLOCK>(before.values, true);
    ptx::wgmma_commit();
    turn.pass();
    ask_block();
    rows.settle();
    if (last) look_ahead();
    ptx::wgmma_wait<0>(rows.s);
    ptx::wgmma_wait<0>(rows.o);
    arrive(barriers.empty + before.stage);
    rows.template go_on<keys>(block.scale, [&] { turn.ask(); });
  }

  // The last values of an item, together with the first scores of the next one. `after` blocks of the item follow.
  template <int keys>
  __device__ __forceinline__ void finish(int after) {
    const Place before = ring;
    const int stage = q_ring.stage;
    ring = ahead;
    skip(after);
    q_ring.next();
    tiles = next_tiles;
    if (tiles > 0) {
      if (split()) skip(group);
      wait_block();
      turn.wait();
      ptx::wgmma_fence();
      scores<BLOCK>();
      rows.template plus_values<keys>(before.values, true);
      ptx::wgmma_commit();
      turn.pass();
      ask_block();
      end(stage);
      ptx::wgmma_wait<0>(rows.s);
      ptx::wgmma_wait<0>(rows.o);
    } else {
      turn.wait();
      ptx::wgmma_fence();
      rows.template plus_values<keys>(before.values, true);
      ptx::wgmma_commit();
      turn.pass();
      end(stage);
      ptx::wgmma_wait<0>(rows.o);
    }
    arrive(barriers.empty + before.stage);
  }
  // What is done for the item of a stage while its last values are multiplied.
  __device__ __forceinline__ void end(int stage) {
    rows.settle();
    rows.add_lanes();
    if (lane == 0) item = block.told[stage];
  }

  // Adds up the results of a split tile, from one warpgroup to the next. They pass through places of queries.
  __device__ __forceinline__ void merge(int stage) {
    float4* const state = reinterpret_cast<float4*>(block.queries + stage * QUERIES_BYTES + 8192) + threadIdx.x % 128;
    float4* const end = merges.ends[stage] + threadIdx.x % 128;
    if (group > 0) {
      ptx::mbarrier_wait(merges.done + group - 1, merge_parity);
      rows.take(state, *end);
    }
    if (group + 1 < GROUP_COUNT) {
      *end = rows.give(state);
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(merges.done + group);
    }
    merge_parity ^= 1;
  }

  // Stores the results of the tile of a stage, or of this warpgroup's tile.
  __device__ __forceinline__ void store(const ptx::TensorMap& o_map, int stage, bool was_split) {
    char* const out = block.queries + stage * QUERIES_BYTES + (was_split ? 0 : group * 8192) + warp_rows * 128;
    rows.put(out);
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) {
      const int tile = Item::first(item.packed) + (was_split ? 0 : group);
      ptx::tensor_store(o_map, item.x, tile * 64 + warp_rows, item.z, out);
      ptx::bulk_commit();
    }
  }

  // An item, whose first scores are there.
  __device__ __forceinline__ void process(const ptx::TensorMap& o_map) {
    const int done = q_ring.stage;
    const bool was_split = split();
    rows.begin_with(queries_at + (tile_at(done) >> 4), tokens_at + done * (ODD_BYTES >> 4),
                    odd_values_at + done * (ODD_BYTES >> 4), block.scale, !was_split || group == 0);
    rows.first_powers(block.scale);
    turn.ask();
    release();
    const int own = was_split ? (blocks - group + GROUP_COUNT - 1) / GROUP_COUNT : blocks;
    const int after = was_split ? blocks - 1 - group - (own - 1) * GROUP_COUNT : 0;  // blocks after its own last one
    const bool shorter = LAST != BLOCK && after == 0;
    for (int j = shorter ? 2 : 1; j < own; j++) round<BLOCK>(j == own - 1 && !shorter);
    if (shorter) round<LAST>(true);
    if (was_split && own * GROUP_COUNT < blocks) {  // other warpgroups have one more block
      if (own == 1) look_ahead();                   // there was no round that did it
      turn.wait();
      turn.pass();
    }
    if (shorter)
      finish<LAST>(0);
    else
      finish<BLOCK>(after);

    if (was_split) merge(done);
    if (!was_split || group == GROUP_COUNT - 1) store(o_map, done, was_split);
    __syncwarp();
    stored = done;
  }

  __device__ __forceinline__ void work(const ptx::TensorMap& o_map) {
    look(q_ring);
    tiles = next_tiles;
    if (tiles > 0) start();
    while (tiles > 0) process(o_map);
    if (lane == 0) ptx::bulk_wait_read<0>();
  }
};
