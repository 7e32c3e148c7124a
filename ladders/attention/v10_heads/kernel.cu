// attention/v10_heads: attention/v9_final for heads that fit into shared memory three at a time.
//
// Idea      With 197 tokens, q, k and v of a head are 76 KB, and a multiprocessor of an H200 computes three of 384
//           heads.
//           - Three heads fit into shared memory, so no load waits for a free stage.
//           - The scores of a row for all keys fit into registers in two parts. Each part has its own largest score as
//             the reference, so its largest power is 1, which halves represent exactly. (A power is the exponential of
//             a score minus its reference.)
//           - The next head's first scores are multiplied while the results of the current one are stored.
//           - After three tiles, 197 tokens have 5 more queries. They are the columns of products whose 64 rows are
//             keys, or columns of values. This takes half of the products that a tile takes.
// Layout    as attention/v9_final. A head is loaded in several boxes: the queries of each tile, the keys of each part,
//           and the values. Results replace the queries in shared memory, from where the copy engine stores them.
// Mapping   a block on each multiprocessor; head i -> block i % blocks; tile g of 64 queries -> warpgroup g; the few
//           queries after the tiles -> the fourth warpgroup, one thread of which starts all copies.
// Roofline  32 x 12 heads of 197 tokens of 64: 39 MB, 0.009 ms at 4.3 TB/s. A head takes 2,500 clocks of the tensor
//           cores and 2,500 clocks of exponentials.
// Gain      over attention/v9_final at 197 tokens: 0.004 ms, because the kernel waits only for data.
// Limits    halves; sm_90a; 64 numbers, 137 to 200 tokens and no mask. attention/v9_final is called for the others.
// Hazards   If all heads were requested at the start, the values of the first one would arrive 0.5 us later. A block
//           therefore requests a head when the keys of the previous one have arrived. The last product of 200 keys with
//           values takes 16 keys. The powers of the last 8 are 0, but shared memory after the values may hold NaN, so
//           the descriptor of that product continues at zeros. Of the registers that a tile has, 149 of 152 are used:
//           with parts of 112 and 88 keys the compiler serialises the products (ptxas reports C7512). A warp replaces
//           its rows of queries by results under the same assumption about its part of a product as in
//           attention/v9_final.
// Source    J. Shah et al., "FlashAttention-3", arXiv:2407.08608; PTX ISA, "wgmma".
#include "few.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention(const __grid_constant__ ptx::TensorMap q_map, const __grid_constant__ ptx::TensorMap few_map,
              const __grid_constant__ ptx::TensorMap k_map, const __grid_constant__ ptx::TensorMap more_map,
              const __grid_constant__ ptx::TensorMap v_map, const __grid_constant__ ptx::TensorMap o_map,
              unsigned* o_at, int T, int heads, int each, int part, float scale) {
  extern __shared__ __align__(1024) char memory[];
  const Block block{memory, T, heads, each, part, scale};
  Barriers& barriers = block.barriers();
  const int lane = threadIdx.x % 32, step = gridDim.x;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  Loader loader{block, q_map, few_map, k_map, more_map, v_map, threadIdx.x == THREADS - 32};
  if (loader.loads) {
    loader.start();
  } else if (threadIdx.x < ZERO_BYTES / 16) {
    reinterpret_cast<uint4*>(block.zeros())[threadIdx.x] = uint4{};
    ptx::fence_proxy_async();
  }
  __syncthreads();  // the mbarriers are initialised, and the zeros are written

  Ring ring;
  if (group == TILES) {
    ptx::setmaxnreg_dec<FEWER>();
    if constexpr (TAIL)
      work_on_few(block, loader, o_at);
    else
      loader.work();
    return;
  }

  ptx::setmaxnreg_inc<MORE>();
  constexpr int WHOLE_STEPS = SECOND / 16;  // products of the second part with values, without half of one
  const int warp_row = group * 64 + threadIdx.x / 32 % 4 * 16;
  const unsigned long long queries_at = ptx::matrix_descriptor_128b(memory + group * TILE_BYTES, 16, 1024);
  const unsigned long long keys_at = ptx::matrix_descriptor_128b(memory + Q_BYTES, 16, 1024);
  const unsigned long long values_at = ptx::matrix_descriptor_128b(memory + Q_BYTES + KEYS_BYTES, KEYS_BYTES, 1024);
  Part<FIRST> first;
  float o[D / 8][4];
  int turn = 0;  // parity of the turns of this warpgroup
  auto wait_turn = [&]() { ptx::mbarrier_wait(barriers.turn + group, turn ^ (group == 0)); };
  auto pass_turn = [&]() {
    __syncwarp();  // all lanes have had their turn
    if (lane == 0) ptx::mbarrier_arrive(barriers.turn + (group + 1 < TILES ? group + 1 : 0));
    turn ^= 1;
  };
  auto first_scores = [&](int slot) {
    const int at = slot * (HEAD_BYTES >> 4);
    first.times_keys(queries_at + at, keys_at + at);
    ptx::wgmma_commit();
  };

  block.wait_queries(ring, group);
  wait_turn();
  ptx::wgmma_fence();
  first_scores(0);
  pass_turn();
  ptx::wgmma_wait<0>(first.s);
  for (int head = blockIdx.x; head < heads; head += step) {
    const int at = ring.slot * (HEAD_BYTES >> 4);
    Part<SECOND> second;
    float sum[2], reference[2], total[2], raised[2];
    first.largest(reference, scale);
    first.power(reference, sum, scale);

    block.wait_values(ring);
    wait_turn();
    ptx::wgmma_fence();
    second.times_keys(queries_at + at, keys_at + at + (FIRST * 128 >> 4));
    ptx::wgmma_commit();
#pragma unroll
    for (int i = 0; i < FIRST / 16; i++) ptx::wgmma_values<D>(o, first.p[i], values_at + at + i * (2048 >> 4), i > 0);
    ptx::wgmma_commit();
    pass_turn();
    ptx::wgmma_wait<1>(second.s);
    second.hide(T - FIRST);
    second.largest(raised, scale);
    // With this limit, o is multiplied by at most 2^8, and stays finite. Below it, powers are small and need fewer
    // digits.
    for (int r = 0; r < 2; r++) raised[r] = fmaxf(raised[r], reference[r] - 8.0f);
    second.power(raised, total, scale);
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      factor[r] = ptx::exp2_approx(reference[r] - raised[r]);
      sum[r] = sum[r] * factor[r] + total[r];
    }

    Ring next = ring;
    next.next();
    const bool more = head + step < heads;
    if (more) block.wait_queries(next, group);
    wait_turn();
    ptx::wgmma_wait<0>(o);
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
      for (int i = 0; i < D / 8; i++) o[i][2 * r] *= factor[r], o[i][2 * r + 1] *= factor[r];
    auto second_values = [&]() {
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < WHOLE_STEPS; i++)
        ptx::wgmma_values<D>(o, second.p[i], values_at + at + ((FIRST / 16 + i) * 2048 >> 4), true);
      if (WHOLE_STEPS < second.STEPS)
        ptx::wgmma_values<D>(o, second.p[WHOLE_STEPS], block.last_values(ring.slot), true);
      ptx::wgmma_commit();
    };
    auto store = [&]() {
      char* const rows = block.slot(ring.slot) + warp_row * 128;
      invert(sum);
      put(o, sum, rows);
      ptx::fence_proxy_async();
      __syncwarp();
      if (lane == 0) {
        const Place place = barriers.place[ring.slot];
        ptx::tensor_store(o_map, place.x, warp_row, place.z, rows);
        ptx::bulk_commit();
      }
    };
    if (!more) {
      second_values();
      pass_turn();
      ptx::wgmma_wait<0>(o);
      store();
      break;
    }
    second_values();
    first_scores(next.slot);  // while the results of this head are stored
    pass_turn();
    ptx::wgmma_wait<1>(o);
    store();
    if (block.is_refilled(head)) {
      if (lane == 0) ptx::bulk_wait_read<0>();
      __syncwarp();
      ptx::mbarrier_arrive(barriers.empty + ring.slot);
    }
    ring = next;
    ptx::wgmma_wait<0>(first.s);
  }
  if (lane == 0) ptx::bulk_wait_read<0>();
}
