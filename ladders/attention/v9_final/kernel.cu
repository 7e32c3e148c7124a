// attention/v9_final: attention/v8_wgmma for real lengths: persistent blocks, no maximum in the loop, odd queries
// separately.
//
// Idea      At D = 64, products and exponentials take equally long, so all other work must be removed.
//           - No maximum in the loop. The reference that is subtracted from the scores of a row is the largest score of
//             its first block of keys. The loop then has no maximum, no exchange between lanes and no rescaling, only a
//             vote whether all exponentials still fit in halves. If not, the reference is raised.
//           - No gaps. A block stays on its multiprocessor and processes item after item. An item is three tiles of 64
//             queries, one for each of three warpgroups. The first scores of an item are computed together with the
//             last values of the previous one.
//           - No divisions. The warp that starts the copies also computes the next item for all warps. This needs
//             divisions, which take as long as a block of keys.
//           - No tile for a few queries. An image has one token more than patches, so T is often a multiple of 64 plus
//             1 or 5. Three warps that are otherwise idle compute these odd queries.
//           - Little padding. Keys are padded to a multiple of 16 only: all blocks but the last have the same size, and
//             both sizes are compile-time constants.
// Layout    as attention/v8_wgmma, in boxes of BLOCK keys, and of 192, 16 and 8 queries. In shared memory, the results
//           of a warp replace its queries, and tensor copies of 16 rows store them.
// Mapping   a block on each multiprocessor: warpgroups 0 to 2 multiply, in turn; warp 12 copies; warps 13 to 15 compute
//           the tail, and each processes every third group of 16 keys. Item i -> block i % blocks. The items of a head
//           follow each other, and rotate from round to round, so that no block has all the short ones.
// Roofline  32 x 12 heads of 1,025 tokens of 64: 103 GFLOP, 0.13 ms at 800 TFLOP/s; 403 M exponentials, 16 per clock
//           and multiprocessor: 0.10 ms. 197 tokens: 39 MB, 0.009 ms at 4.3 TB/s.
// Gain      over attention/v8_wgmma: a factor of 2, because the loop has no maximum, blocks are longer, and the ends of
//           an item are hidden.
// Limits    halves; sm_90a. With D = 128, a mask or more than 8 odd queries, the last tile is padded instead.
// Hazards   As attention/v8_wgmma. In addition:
//           - The turn rotates among all warpgroups that have a tile in this item or in the previous one, because the
//             last products of the previous item are started in the same turn as the first products of this one.
//           - A branch between the products of a group makes the compiler serialise them (ptxas reports C7510 to
//             C7519). Too few registers have the same effect, so blocks are shorter if a tail needs registers.
//           - A slot of queries is free when the results that replaced them have been read from it.
//           - A warp replaces its 16 rows of queries after its own wait, while other warps of its warpgroup may still
//             wait for the same products. It relies on the fact that each warp's part of a product reads only its own
//             16 rows of the first operand. This is how an H100 and an H200 work, but PTX does not promise it; a
//             barrier of the warpgroup before the results are written would make it safe.
//           - A hidden score times a negative scale must also become -inf.
// Source    J. Shah et al., "FlashAttention-3", arXiv:2407.08608; PTX ISA, "wgmma", "setmaxnreg", "movmatrix".
#include "roles.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention(const __grid_constant__ ptx::TensorMap q_map, const __grid_constant__ ptx::TensorMap k_map,
              const __grid_constant__ ptx::TensorMap v_map, const __grid_constant__ ptx::TensorMap o_map,
              const __grid_constant__ ptx::TensorMap tail_map, unsigned* o, int T, int heads, int each, int part,
              float scale) {
  extern __shared__ __align__(1024) char memory[];  // stages of keys and values; queries, and results in their place
  __shared__ Barriers barriers;
  __shared__ Item told[Q_STAGES];
  const Items items(T, heads);
  const int lane = threadIdx.x % 32;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  char* const queries = memory + STAGES * 2 * KEYS_BYTES;
  const Block block{items, {each, part}, memory, queries, queries + Q_STAGES * QUERIES_BYTES, barriers, told, T, scale};
  if (threadIdx.x == 0) barriers.init();
  __syncthreads();  // the mbarriers are initialised

  if (group == GROUP_COUNT) {
    ptx::setmaxnreg_dec<FEWER>();
    const int warp = threadIdx.x / 32 - GROUP_COUNT * 4;
    if (warp == 0 && lane == 0) load(block, q_map, k_map, v_map, tail_map);
    if (TAIL && warp > 0) work_on_tail(block, warp - 1, o);
    return;
  }

  ptx::setmaxnreg_inc<MORE>();
  Ring<STAGES> ring;
  Ring<Q_STAGES> q_ring;
  Rows rows;
#pragma unroll
  for (int i = 0; i < D / 8; i++) rows.o[i][0] = rows.o[i][1] = rows.o[i][2] = rows.o[i][3] = 0.0f;
  int turn = 0;     // parity of the turns of this warpgroup
  int stored = -1;  // the stage of queries whose results are being copied
  const int warp_rows = threadIdx.x / 32 % 4 * 16;
  const unsigned long long values_at = ptx::matrix_descriptor_128b(memory + KEYS_BYTES, BLOCK * 128, 1024);
  const unsigned long long keys_at = ptx::matrix_descriptor_128b(memory, 16, 1024);
  const unsigned long long queries_at = ptx::matrix_descriptor_128b(queries + group * 8192, 16, 1024);

  auto arrive = [&](ptx::mbarrier* barrier) {
    if (lane == 0) ptx::mbarrier_arrive(barrier);
  };
  auto wait_turn = [&]() {
    if (TURNS) ptx::mbarrier_wait(barriers.turn + group, turn ^ (group == 0));
  };
  auto pass_turn = [&](int groups) {  // to the next of `groups` warpgroups
    if (TURNS) {
      __syncwarp();  // all lanes have had their turn
      arrive(barriers.turn + (group + 1 < groups ? group + 1 : 0));
    }
    turn ^= 1;
  };
  auto release = [&]() {
    if (stored < 0) return;
    if (lane == 0) {
      ptx::bulk_wait_read<0>();
      ptx::mbarrier_arrive(barriers.q_empty + stored);
    }
    stored = -1;
  };
  auto skip = [&](int blocks) {  // blocks of keys that this warpgroup does not need
    for (; blocks > 0; blocks--, ring.next()) {
      ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
      arrive(barriers.empty + ring.stage);
    }
  };
  int first, groups;  // of the current item
  auto look = [&]() {
    ptx::mbarrier_wait(barriers.q_full + q_ring.stage, q_ring.parity);
    const int packed = read_by_one(told[q_ring.stage].packed);
    first = Item::first(packed);
    groups = Item::tiles(packed);
  };
  // Skips items without a tile for this warpgroup. Returns the number of warpgroups with a tile in the item before.
  auto skip_items = [&](int before) {
    while (groups > 0 && group >= groups) {
      __syncwarp();  // all lanes have looked
      arrive(barriers.q_empty + q_ring.stage);
      skip(blocks_for(T, first + groups));
      before = groups;
      q_ring.next();
      look();
    }
    return before;
  };
  auto scores = [&]() {
    rows.times_keys<BLOCK>(queries_at + q_ring.stage * (QUERIES_BYTES >> 4),
                           keys_at + ring.stage * (2 * KEYS_BYTES >> 4));
  };
  auto start = [&](int before) {  // the first scores of an item, without other products
    ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
    wait_turn();
    ptx::wgmma_fence();
    scores();
    ptx::wgmma_commit();
    pass_turn(max(before, groups));  // some compute the last products of the previous item in this round
    ptx::wgmma_wait<0>(rows.s);
  };

  // The scores of the next block, together with the values of the previous block.
  auto advance = [&]() {
    const int before = ring.stage;
    ring.next();
    return before;
  };
  auto round = [&](auto keys, int before, bool add, int groups) {
    ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
    wait_turn();
    ptx::wgmma_fence();
    rows.times_keys<keys.count>(queries_at + q_ring.stage * (QUERIES_BYTES >> 4),
                                keys_at + ring.stage * (2 * KEYS_BYTES >> 4));
    rows.plus_values<BLOCK>(values_at + before * (2 * KEYS_BYTES >> 4), add);
    ptx::wgmma_commit();
    pass_turn(groups);
    ptx::wgmma_wait<0>(rows.s);
    ptx::wgmma_wait<0>(rows.o);
    arrive(barriers.empty + before);
  };

  look();
  skip_items(0);
  if (groups > 0) start(0);
  while (groups > 0) {
    const int tile = first + group, blocks = blocks_for(T, tile + 1), all_blocks = blocks_for(T, first + groups);
    const int row = tile * 64 + warp_rows + lane / 4;  // this thread's first
    // `ring` is at the block whose scores are computed. `before` is the stage of the previous block, for its values.
    if (blocks == 1 || CAUSAL) rows.hide<BLOCK>(T, row);
    rows.begin<BLOCK>(scale);
    rows.go_on<BLOCK>(scale);
    release();
    const int plain = LAST == BLOCK ? blocks : blocks - 1;  // a shorter last block is separate
    int j = 1;
    for (; j < plain; j++) {
      const int before = advance();
      round(Keys<BLOCK>(), before, j > 1, groups);
      const int from = j * BLOCK;
      if (CAUSAL ? from + BLOCK > min(T, tile * 64) : LAST == BLOCK && from + BLOCK > T)
        rows.hide<BLOCK>(T - from, row - from);
      rows.go_on<BLOCK>(scale);
    }
    if (LAST != BLOCK) {
      const int before = advance();
      round(Keys<LAST>(), before, j > 1, groups);
      rows.hide<LAST>(T - j * BLOCK, row - j * BLOCK);
      rows.go_on<LAST>(scale);
    }

    const int before = ring.stage, done = q_ring.stage;
    const unsigned long long v = values_at + before * (2 * KEYS_BYTES >> 4);
    ring.next();
    q_ring.next();
    const int before_groups = groups;
    look();
    const bool joint = !CAUSAL && group < groups;
    if (joint) {
      ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
      wait_turn();
      ptx::wgmma_fence();
      scores();
      rows.plus_values<LAST>(v, blocks > 1);
      ptx::wgmma_commit();
      pass_turn(max(before_groups, groups));
      ptx::wgmma_wait<0>(rows.s);
      ptx::wgmma_wait<0>(rows.o);
    } else {
      wait_turn();
      ptx::wgmma_fence();
      rows.plus_values<LAST>(v, blocks > 1);
      ptx::wgmma_commit();
      pass_turn(max(before_groups, groups));
      ptx::wgmma_wait<0>(rows.o);
    }
    arrive(barriers.empty + before);

    char* const out = queries + done * QUERIES_BYTES + group * 8192 + warp_rows * 128;
    rows.add_lanes();
    rows.put(out);
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0 && tile * 64 + warp_rows < T) {
      for (int i = 0; i < PARTS; i++)
        ptx::tensor_store(o_map, told[done].x + 64 * i, tile * 64 + warp_rows, told[done].z, out + i * Q_PART_BYTES);
      ptx::bulk_commit();
    }
    __syncwarp();
    stored = done;
    if (!joint) {
      release();
      skip(all_blocks - blocks);
      const int before = skip_items(before_groups);
      if (groups > 0) start(before);
    }
  }
  if (lane == 0) ptx::bulk_wait_read<0>();
}
