// attention/v11_odd_token: attention/v9_final for 64 n + 1 tokens; the odd key, query and tile are separate.
//
// Idea      577 and 1,025 tokens are 64 n patches and one token for the class. attention/v9_final computes the query of
//           the odd token separately, but its key costs all warpgroups a round, or a longer block. Here, an item begins
//           with the odd key: its scores are a product with 8 keys, and the sums and the output start with its power
//           times its value, instead of 0. (A power is the exponential of a score minus its row's reference.) The odd
//           query takes half as many instructions, because a warp processes 32 keys at a time, and only one query. If
//           the number of tiles of a head is not a multiple of three, one tile is left over. All warpgroups share it:
//           each processes every third block of keys, and the results are added at the end. This takes about half of
//           the time of three tiles, so two such tiles form a unit of work. Powers are added as halves, two at a time.
//           No unit is busy all the time, so the time from powers to their products counts: warpgroups test early
//           whether turns and blocks have come, and do other work while products run.
// Layout    as attention/v9_final, without a tail. The rows of the odd token are boxes of their own: key and query are
//           rows of a tile of 8 keys, and the value is the first row of a tile that serves as both halves of 16 keys.
// Mapping   as attention/v9_final. Unit i -> block i % blocks. The odd query belongs to the first item of a head, which
//           has three tiles.
// Roofline  as attention/v9_final: 32 x 12 heads of 1,025 tokens of 64 are 103 GFLOP, 0.13 ms at 800 TFLOP/s, and 403 M
//           exponentials, 0.10 ms.
// Gain      over attention/v10_heads, which calls attention/v9_final at such lengths: 4 us of 77 at 577 tokens, because
//           6 rounds of keys take the place of 7, and 19 us of 210 at 1,025 tokens, because a tile alone costs its
//           multiprocessor three quarters of an item.
// Limits    halves; sm_90a; 64 numbers, a positive scale, no mask, 385 or more tokens: 64 n + 1, where n is a multiple
//           of three, or one more if splitting a tile makes the busiest block faster. For others, it calls v10_heads.
// Hazards   As attention/v9_final. A warpgroup takes its turn even if it has no block of a split tile left and the
//           others have one. Results of a split tile pass through places of absent queries. The product with the odd
//           key is a group of its own: beside the first scores, its sums make the compiler serialise all products
//           (ptxas reports C7511). mbarrier_try_wait may sleep: no early test uses it.
// Source    J. Shah et al., "FlashAttention-3", arXiv:2407.08608; PTX ISA, "wgmma", "mma.sync".
#include "roles.cuh"
#include "turns.cuh"

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
  Ring<Q_STAGES> q_ring;
  OddRows rows;
  Turns turn{barriers.turn, group};
  int merges = 0;   // parity of the tiles that were split
  int stored = -1;  // the stage of queries whose results are being copied
  const int warp_rows = threadIdx.x / 32 % 4 * 16;
  Place ring{ptx::matrix_descriptor_128b(memory, 16, 1024),
             ptx::matrix_descriptor_128b(memory + KEYS_BYTES, BLOCK * 128, 1024)};
  const unsigned long long queries_at = ptx::matrix_descriptor_128b(queries, 16, 1024);
  const unsigned long long tokens_at = ptx::matrix_descriptor_128b(tokens + ODD_KEY, 16, 1024);
  const unsigned long long odd_values_at = ptx::matrix_descriptor_128b(tokens + ODD_VALUE, BLOCK * 128, 0);
  const int blocks = blocks_for(full, 0);

  auto arrive = [&](ptx::mbarrier* barrier) {
    if (lane == 0) ptx::mbarrier_arrive(barrier);
  };
  Place ahead = ring;  // the next block
  bool come = false;   // whether an early test found that it has come
  auto ask_block = [&]() {
    ahead = ring;
    ahead.next();
    come = ptx::mbarrier_test_wait(barriers.full + ahead.stage, ahead.parity);
  };
  auto wait_block = [&]() {
    if (!come) ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
    come = false;
  };
  auto release = [&]() {
    if (stored < 0) return;
    if (lane == 0) {
      ptx::bulk_wait_read<0>();
      ptx::mbarrier_arrive(barriers.q_empty + stored);
    }
  };
  int tiles;  // of the current item; a single tile is shared: each warpgroup has every third block of keys
  auto split = [&]() { return SPLIT && tiles == 1; };
  auto tile_at = [&](int stage) { return stage * QUERIES_BYTES + (split() ? 0 : group * 8192); };
  int next_tiles;  // of the next item
  auto look = [&](Ring<Q_STAGES> at) {
    ptx::mbarrier_wait(barriers.q_full + at.stage, at.parity);
    next_tiles = Item::tiles(read_by_one(told[at.stage].packed));
  };
  auto look_ahead = [&]() {
    Ring<Q_STAGES> at = q_ring;
    at.next();
    look(at);
  };
  auto skip = [&](int count) {  // releases blocks of keys that other warpgroups process
    if (count > 0) come = false;
    for (; count > 0; count--, ring.next()) {
      ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
      arrive(barriers.empty + ring.stage);
    }
  };
  auto scores = [&](auto keys) { rows.times_keys<keys.count>(queries_at + (tile_at(q_ring.stage) >> 4), ring.keys); };

  // The scores of the next block, together with the values of the previous block.
  auto round = [&](auto keys, bool last) {
    const Place before = ring;
    ring = ahead;
    if (split()) skip(GROUP_COUNT - 1);
    wait_block();
    turn.wait();
    ptx::wgmma_fence();
    scores(keys);
    rows.plus_values<BLOCK>(before.values, true);
    ptx::wgmma_commit();
    turn.pass();
    ask_block();
    rows.settle();
    if (last) look_ahead();
    ptx::wgmma_wait<0>(rows.s);
    ptx::wgmma_wait<0>(rows.o);
    arrive(barriers.empty + before.stage);
    rows.go_on<keys.count>(scale, [&] { turn.ask(); });
  };

  Item item;  // the item that is finished; only lane 0 reads it
  // The last values of an item, together with the first scores of the next one.
  auto finish = [&](auto keys, int after) {
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
      scores(Keys<BLOCK>());
      rows.plus_values<keys.count>(before.values, true);
      ptx::wgmma_commit();
      turn.pass();
      ask_block();
      rows.settle();
      rows.add_lanes();
      if (lane == 0) item = told[stage];
      ptx::wgmma_wait<0>(rows.s);
      ptx::wgmma_wait<0>(rows.o);
    } else {
      turn.wait();
      ptx::wgmma_fence();
      rows.plus_values<keys.count>(before.values, true);
      ptx::wgmma_commit();
      turn.pass();
      rows.settle();
      rows.add_lanes();
      if (lane == 0) item = told[stage];
      ptx::wgmma_wait<0>(rows.o);
    }
    arrive(barriers.empty + before.stage);
  };

  // Adds up the results of a split tile, from one warpgroup to the next. They pass through places of queries.
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

  look(q_ring);
  tiles = next_tiles;
  if (tiles > 0) {  // the first scores, without other products
    if (split()) skip(group);
    wait_block();
    turn.wait();
    ptx::wgmma_fence();
    scores(Keys<BLOCK>());
    ptx::wgmma_commit();
    turn.pass();
    ask_block();
    ptx::wgmma_wait<0>(rows.s);
  }
  while (tiles > 0) {
    const int done = q_ring.stage;
    const bool was_split = split();
    rows.begin_with(queries_at + (tile_at(done) >> 4), tokens_at + done * (ODD_BYTES >> 4),
                    odd_values_at + done * (ODD_BYTES >> 4), scale, !was_split || group == 0);
    turn.ask();
    release();
    const int own = was_split ? (blocks - group + GROUP_COUNT - 1) / GROUP_COUNT : blocks;
    const int after = was_split ? blocks - 1 - group - (own - 1) * GROUP_COUNT : 0;  // blocks behind the last own one
    const bool shorter = LAST != BLOCK && after == 0;
    for (int j = shorter ? 2 : 1; j < own; j++) round(Keys<BLOCK>(), j == own - 1 && !shorter);
    if (shorter) round(Keys<LAST>(), true);
    if (was_split && own * GROUP_COUNT < blocks) {  // other warpgroups have one more block
      if (own == 1) look_ahead();                   // there was no round that did it
      turn.wait();
      turn.pass();
    }
    if (shorter)
      finish(Keys<LAST>(), 0);
    else
      finish(Keys<BLOCK>(), after);

    if (was_split) merge(done);
    if (!was_split || group == GROUP_COUNT - 1) {
      char* const out = queries + done * QUERIES_BYTES + (was_split ? 0 : group * 8192) + warp_rows * 128;
      rows.put(out);
      ptx::fence_proxy_async();
      __syncwarp();
      if (lane == 0) {
        const int tile = Item::first(item.packed) + (was_split ? 0 : group);
        ptx::tensor_store(o_map, item.x, tile * 64 + warp_rows, item.z, out);
        ptx::bulk_commit();
      }
    }
    __syncwarp();
    stored = done;
  }
  if (lane == 0) ptx::bulk_wait_read<0>();
}
