// attention/v11_odd_token: attention/v9_final for 64 n + 1 tokens, with all that is odd about them computed separately.
//
// Idea      577 and 1,025 tokens are 64 n patches and one token for the class. attention/v9_final computes the query of
//           the odd token separately, but its key costs all warpgroups a round, or a longer block. Here, it is part of
//           the beginning of an item: its scores are a product with 8 keys, and the sums and the output start with its
//           power instead of 0. The odd query is computed with half of the instructions: 32 keys at a time, and only
//           one query. If the tiles of a head are not a multiple of three, one is left. All warpgroups compute it, with
//           every third block of keys each, and add up their results in the end. That takes about half of the time of
//           three tiles, so a unit of work has two of them. Powers are added as halves, two at a time.
// Layout    as attention/v9_final, without a tail. The rows of the odd token are boxes of their own.
// Mapping   as attention/v9_final. Unit i -> block i % blocks. The odd query belongs to the first item of a head, which
//           has three tiles.
// Roofline  as attention/v9_final: 32 x 12 heads of 1,025 tokens of 64 are 103 GFLOP, 0.13 ms at 800 TFLOP/s, and 403 M
//           exponentials, 0.10 ms.
// Gain      over attention/v10_heads, which calls attention/v9_final at such lengths: 4 us of 77 at 577 tokens, because
//           6 rounds of keys take the place of 7, and 19 us of 210 at 1,025 tokens, because a tile alone costs its
//           multiprocessor three quarters of an item.
// Limits    halves; sm_90a; 64 numbers, a positive scale, no mask, and 385 or more tokens: 64 n + 1, where n is a
//           multiple of three, or one more if splitting a tile makes the busiest block faster. attention/v10_heads is
//           called for the others.
// Hazards   As attention/v9_final. A warpgroup takes its turn even if only the others have one block of a split tile
//           more. Results of a split tile go through places of queries that this item does not have. The product with
//           the odd key is a group of its own: in the same group as the first scores, its sums make the compiler
//           serialise all products (ptxas reports C7511).
// Source    J. Shah et al., "FlashAttention-3", arXiv:2407.08608; PTX ISA, "wgmma", "mma.sync".
#include "roles.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention(const __grid_constant__ ptx::TensorMap q_map, const __grid_constant__ ptx::TensorMap k_map,
              const __grid_constant__ ptx::TensorMap v_map, const __grid_constant__ ptx::TensorMap o_map,
              const __grid_constant__ ptx::TensorMap odd_q_map, const __grid_constant__ ptx::TensorMap odd_k_map,
              const __grid_constant__ ptx::TensorMap odd_v_map, half* o, int full, int heads, int each, int part,
              float scale) {
  extern __shared__ __align__(1024) char memory[];  // stages of keys and values; queries, and results in their place
  __shared__ Barriers barriers;
  __shared__ ptx::mbarrier merged[GROUP_COUNT - 1];
  __shared__ float4 ends[SPLIT ? Q_STAGES : 1][128];
  __shared__ Item told[Q_STAGES];
  const int lane = threadIdx.x % 32;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  char* const queries = memory + STAGES * 2 * KEYS_BYTES;
  char* const tokens = queries + Q_STAGES * QUERIES_BYTES;
  const Block block{Items(full, heads), {each, part}, memory, queries, tokens, barriers, told, full, scale};
  if (threadIdx.x == 0) {
    barriers.init();
    for (int i = 0; i < GROUP_COUNT - 1; i++) ptx::mbarrier_init(merged + i, 128);
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
    if (warp == 0 && lane == 0) load(block, {full, heads}, {q_map, k_map, v_map, odd_q_map, odd_k_map, odd_v_map});
    if (warp > 0) work_on_query(block, warp - 1, o);
    return;
  }

  ptx::setmaxnreg_inc<MORE>();
  Ring<STAGES> ring;
  Ring<Q_STAGES> q_ring;
  OddRows rows;
  int turn = 0;     // parity of the turns of this warpgroup
  int merges = 0;   // parity of the tiles that were split
  int stored = -1;  // the stage of queries whose results are being copied
  const int warp_rows = threadIdx.x / 32 % 4 * 16;
  const unsigned long long values_at = ptx::matrix_descriptor_128b(memory + KEYS_BYTES, BLOCK * 128, 1024);
  const unsigned long long keys_at = ptx::matrix_descriptor_128b(memory, 16, 1024);
  const unsigned long long queries_at = ptx::matrix_descriptor_128b(queries, 16, 1024);
  const unsigned long long tokens_at = ptx::matrix_descriptor_128b(tokens, 16, 1024);
  const int blocks = blocks_for(full, 0);

  auto arrive = [&](ptx::mbarrier* barrier) {
    if (lane == 0) ptx::mbarrier_arrive(barrier);
  };
  auto wait_turn = [&]() { ptx::mbarrier_wait(barriers.turn + group, turn ^ (group == 0)); };
  auto pass_turn = [&]() {
    __syncwarp();  // all lanes have had their turn
    arrive(barriers.turn + (group + 1 < GROUP_COUNT ? group + 1 : 0));
    turn ^= 1;
  };
  auto release = [&]() {
    if (stored < 0) return;
    if (lane == 0) {
      ptx::bulk_wait_read<0>();
      ptx::mbarrier_arrive(barriers.q_empty + stored);
    }
  };
  int tiles;  // of the current item. If it is 1, all warpgroups have that tile, and every third block of keys
  auto split = [&]() { return SPLIT && tiles == 1; };
  auto tile_at = [&](int stage) { return stage * QUERIES_BYTES + (split() ? 0 : group * 8192); };
  auto look = [&]() {
    ptx::mbarrier_wait(barriers.q_full + q_ring.stage, q_ring.parity);
    tiles = Item::tiles(read_by_one(told[q_ring.stage].packed));
  };
  auto skip = [&](int count) {  // blocks of keys that are for other warpgroups
    for (; count > 0; count--, ring.next()) {
      ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
      arrive(barriers.empty + ring.stage);
    }
  };
  auto scores = [&](auto keys) {
    rows.times_keys<keys.count>(queries_at + (tile_at(q_ring.stage) >> 4),
                                keys_at + ring.stage * (2 * KEYS_BYTES >> 4));
  };

  // The scores of the next block, together with the values of the previous block.
  auto round = [&](auto keys) {
    const int before = ring.stage;
    ring.next();
    if (split()) skip(GROUP_COUNT - 1);
    ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
    wait_turn();
    ptx::wgmma_fence();
    scores(keys);
    rows.plus_values<BLOCK>(values_at + before * (2 * KEYS_BYTES >> 4), true);
    ptx::wgmma_commit();
    pass_turn();
    ptx::wgmma_wait<0>(rows.s);
    ptx::wgmma_wait<0>(rows.o);
    arrive(barriers.empty + before);
    rows.go_on<keys.count>(scale);
  };

  // The last values of an item, together with the first scores of the next one.
  auto finish = [&](auto keys, int after) {
    const int before = ring.stage;
    const unsigned long long v = values_at + before * (2 * KEYS_BYTES >> 4);
    ring.next();
    skip(after);
    q_ring.next();
    look();
    if (tiles > 0) {
      if (split()) skip(group);
      ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
      wait_turn();
      ptx::wgmma_fence();
      scores(Keys<BLOCK>());
      rows.plus_values<keys.count>(v, true);
      ptx::wgmma_commit();
      pass_turn();
      ptx::wgmma_wait<0>(rows.s);
      ptx::wgmma_wait<0>(rows.o);
    } else {
      wait_turn();
      ptx::wgmma_fence();
      rows.plus_values<keys.count>(v, true);
      ptx::wgmma_commit();
      pass_turn();
      ptx::wgmma_wait<0>(rows.o);
    }
    arrive(barriers.empty + before);
  };

  // Adds up the results of a tile that was split, from one warpgroup to the next. They go through places of queries.
  auto merge = [&](int stage) {
    float4* const state = reinterpret_cast<float4*>(queries + stage * QUERIES_BYTES + 8192) + threadIdx.x % 128;
    float4* const end = ends[stage] + threadIdx.x % 128;
    if (group > 0) {
      ptx::mbarrier_wait(merged + group - 1, merges);
      rows.take(state, *end);
    }
    if (group + 1 < GROUP_COUNT) {
      *end = rows.give(state);
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(merged + group);
    }
    merges ^= 1;
  };

  look();
  if (tiles > 0) {  // the first scores, without other products
    if (split()) skip(group);
    ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
    wait_turn();
    ptx::wgmma_fence();
    scores(Keys<BLOCK>());
    ptx::wgmma_commit();
    pass_turn();
    ptx::wgmma_wait<0>(rows.s);
  }
  while (tiles > 0) {
    const int done = q_ring.stage;
    const bool was_split = split();
    rows.begin_with(queries_at + (tile_at(done) >> 4), tokens_at + done * (ODD_BYTES >> 4),
                    reinterpret_cast<const half*>(tokens + done * ODD_BYTES + ODD_VALUE), scale,
                    !was_split || group == 0);
    release();
    const int own = was_split ? (blocks - group + GROUP_COUNT - 1) / GROUP_COUNT : blocks;
    const int after = was_split ? blocks - 1 - group - (own - 1) * GROUP_COUNT : 0;  // blocks behind the last own one
    const bool shorter = LAST != BLOCK && after == 0;
    for (int j = shorter ? 2 : 1; j < own; j++) round(Keys<BLOCK>());
    if (shorter) round(Keys<LAST>());
    if (was_split && own * GROUP_COUNT < blocks) {  // others have one more
      wait_turn();
      pass_turn();
    }
    if (shorter)
      finish(Keys<LAST>(), 0);
    else
      finish(Keys<BLOCK>(), after);

    if (was_split) merge(done);
    if (!was_split || group == GROUP_COUNT - 1) {
      char* const out = queries + done * QUERIES_BYTES + (was_split ? 0 : group * 8192) + warp_rows * 128;
      rows.add_lanes();
      rows.put(out);
      ptx::fence_proxy_async();
      __syncwarp();
      if (lane == 0) {
        const int tile = Item::first(told[done].packed) + (was_split ? 0 : group);
        ptx::tensor_store(o_map, told[done].x, tile * 64 + warp_rows, told[done].z, out);
        ptx::bulk_commit();
      }
    }
    __syncwarp();
    stored = done;
  }
  if (lane == 0) ptx::bulk_wait_read<0>();
}
