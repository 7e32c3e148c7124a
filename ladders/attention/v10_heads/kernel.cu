// attention/v10_heads: attention/v9_final for heads that fit into shared memory three at a time.
//
// Idea      With 197 tokens, q, k and v of a head are 76 KB, and a multiprocessor of an H200 has three heads of 384 to
//           compute. All three fit into its shared memory, so everything is requested at the start, and no stage is
//           waited for or given back. A row's scores for all keys fit into registers in two parts. Each part has its
//           own largest score as the reference, so its largest power is 1, which halves represent exactly. The 5
//           queries that 197 has after three tiles are a tile of a fourth warpgroup, of which one warp computes powers.
// Layout    as attention/v9_final, in boxes of KEYS keys and Q_ROWS queries. Results go through the place of their
//           queries, and from there to global memory, 16 bytes a thread.
// Mapping   a block on each multiprocessor; head i -> block i % blocks; tile g of 64 queries -> warpgroup g. One thread
//           of the fourth warpgroup starts all copies.
// Roofline  32 x 12 heads of 197 tokens of 64: 39 MB, 0.009 ms at 4.3 TB/s. A head takes 2,500 clocks of the tensor
//           cores and 2,500 clocks of exponentials.
// Gain      over attention/v9_final at 197 tokens: 0.004 ms expected, because nothing but data is waited for; 0.0016 ms
//           measured on an H100.
// Limits    halves; sm_90a; 64 numbers, 137 to 200 tokens and no mask. attention/v9_final is called for the others.
// Hazards   The last product of 200 keys with values takes 16 keys. The powers of the last 8 are 0, but shared memory
//           behind the values may hold NaN, so the descriptor of that product continues at zeros. The second scores
//           and the first values are one group of products; a wait between them makes the compiler serialise them
//           (ptxas reports C7519 and C7520). With larger parts it finds too few registers (C7512).
// Source    J. Shah et al., "FlashAttention-3", arXiv:2407.08608; PTX ISA, "wgmma".
#include "block.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention(const __grid_constant__ ptx::TensorMap q_map, const __grid_constant__ ptx::TensorMap k_map,
              const __grid_constant__ ptx::TensorMap v_map, unsigned* o_at, int T, int heads, int each, int part,
              float scale) {
  extern __shared__ __align__(1024) char memory[];  // slots: queries, and results in their place; keys; values
  char* const zeros = memory + SLOTS * HEAD_BYTES;
  Barriers& barriers = *reinterpret_cast<Barriers*>(zeros + ZERO_BYTES);
  const int lane = threadIdx.x % 32, step = gridDim.x;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  const bool loads = threadIdx.x == THREADS - 32;

  auto load = [&](int head, int slot) {  // heads follow each other along x or along z of their tensor maps
    const int x = head % each * D, z = head / each;
    char *const queries = memory + slot * HEAD_BYTES, *const keys = queries + Q_BYTES;
    barriers.out[slot] = (long long)z * T * each * D + x;
    ptx::mbarrier_arrive_expect_tx(barriers.keys + slot, Q_BYTES + KEYS_BYTES);
    ptx::tensor_load(queries, q_map, x, 0, z, barriers.keys + slot);
    ptx::tensor_load(keys, k_map, x + part, 0, z, barriers.keys + slot);
    ptx::mbarrier_arrive_expect_tx(barriers.values + slot, KEYS_BYTES);
    ptx::tensor_load(keys + KEYS_BYTES, v_map, x + 2 * part, 0, z, barriers.values + slot);
  };
  if (loads) {
    ptx::tensor_prefetch(q_map);
    ptx::tensor_prefetch(k_map);
    ptx::tensor_prefetch(v_map);
    barriers.init();
    ptx::grid_wait();
    for (int i = 0; i < SLOTS && blockIdx.x + i * step < heads; i++) load(blockIdx.x + i * step, i);
  } else if (threadIdx.x < ZERO_BYTES / 16) {
    reinterpret_cast<uint4*>(zeros)[threadIdx.x] = uint4{};
    ptx::fence_proxy_async();
  }
  __syncthreads();  // the mbarriers are initialised, and the zeros are written

  Ring ring;
  auto is_refilled = [&](int head) { return head + SLOTS * step < heads; };  // the slot of a head
  auto refill = [&](int head) {                                              // once all have read it
    if (!loads || !is_refilled(head)) return;
    ptx::mbarrier_wait(barriers.empty + ring.slot, ring.parity);
    ptx::fence_proxy_async();  // results have been written there
    load(head + SLOTS * step, ring.slot);
  };
  if (group == WARPGROUPS) {  // nothing else to do
    for (int head = blockIdx.x; head < heads; head += step, ring.next()) refill(head);
    return;
  }

  constexpr int SECOND = KEYS - FIRST;
  constexpr int WHOLE_STEPS = SECOND / 16;  // products of the second part with values, without half of one
  const int warp_row = threadIdx.x / 32 % 4 * 16;
  const unsigned long long queries_at = ptx::matrix_descriptor_128b(memory + group * 8192, 16, 1024);
  const unsigned long long keys_at = ptx::matrix_descriptor_128b(memory + Q_BYTES, 16, 1024);
  const unsigned long long values_at = ptx::matrix_descriptor_128b(memory + Q_BYTES + KEYS_BYTES, KEYS_BYTES, 1024);
  float o[D / 8][4];
  int turn = 0;  // parity of the turns of this warpgroup
  auto wait_turn = [&]() { ptx::mbarrier_wait(barriers.turn + group, turn ^ (group == 0)); };
  auto pass_turn = [&]() {
    __syncwarp();  // all lanes have had their turn
    if (lane == 0) ptx::mbarrier_arrive(barriers.turn + (group + 1 < TILES ? group + 1 : 0));
    turn ^= 1;
  };

  // Computes a tile of each head. The tile of the few queries has at most 8 rows, all of them in the first warp, and
  // takes no turns.
  auto work = [&](auto is_few) {
    constexpr bool FEW = is_few.value;
    constexpr int ROWS = FEW ? 1 : 2;  // of a thread
    const bool counts = !FEW || warp_row == 0;
    for (int head = blockIdx.x; head < heads; head += step, ring.next()) {
      const int at = ring.slot * (HEAD_BYTES >> 4);
      Part<FIRST> first;
      Part<SECOND> second;
      float sum[2] = {}, reference[2] = {};

      ptx::mbarrier_wait(barriers.keys + ring.slot, ring.parity);
      if (!FEW) wait_turn();
      ptx::wgmma_fence();
      first.times_keys(queries_at + at, keys_at + at);
      ptx::wgmma_commit();
      if (!FEW) pass_turn();
      ptx::wgmma_wait<0>(first.s);
      if (counts) {
        first.template largest<ROWS>(reference, scale);
        first.template power<ROWS>(reference, sum, scale);
      } else {
        first.clear();
      }

      ptx::mbarrier_wait(barriers.values + ring.slot, ring.parity);
      if (!FEW) wait_turn();
      ptx::wgmma_fence();
      second.times_keys(queries_at + at, keys_at + at + (FIRST * 128 >> 4));
#pragma unroll
      for (int i = 0; i < FIRST / 16; i++) ptx::wgmma_values<D>(o, first.p[i], values_at + at + i * (2048 >> 4), i > 0);
      ptx::wgmma_commit();
      if (!FEW) pass_turn();
      ptx::wgmma_wait<0>(second.s);
      float total[2] = {}, raised[2] = {};
      if (counts) {
        second.hide(T - FIRST);
        second.template largest<ROWS>(raised, scale);
        // No lower than this, so that o stays finite. Powers below 2^-8 need not fit so well.
        for (int r = 0; r < ROWS; r++) raised[r] = fmaxf(raised[r], reference[r] - 8.0f);
        second.template power<ROWS>(raised, total, scale);
      } else {
        second.clear();
      }
      ptx::wgmma_wait<0>(o);
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        const float factor = ptx::exp2_approx(reference[r] - raised[r]);
        sum[r] = sum[r] * factor + total[r];
#pragma unroll
        for (int i = 0; i < D / 8; i++) o[i][2 * r] *= factor, o[i][2 * r + 1] *= factor;
      }

      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < WHOLE_STEPS; i++)
        ptx::wgmma_values<D>(o, second.p[i], values_at + at + ((FIRST / 16 + i) * 2048 >> 4), true);
      if (WHOLE_STEPS < second.STEPS) {
        const char* const last = memory + ring.slot * HEAD_BYTES + Q_BYTES + KEYS_BYTES + KEYS / 16 * 2048;
        ptx::wgmma_values<D>(o, second.p[WHOLE_STEPS], ptx::matrix_descriptor_128b(last, KEYS_BYTES, zeros - last),
                             true);
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>(o);

      const int row = group * 64 + warp_row;
      const long long pitch = each * D / 2;
      unsigned* const out = o_at + barriers.out[ring.slot] / 2 + row * pitch;
      invert(sum);
      if (!FEW)
        put(o, sum, memory + ring.slot * HEAD_BYTES + row * 128, out, pitch, T - row);
      else if (counts)
        put_few(o, sum[0], out, pitch, T - row);
      if (is_refilled(head)) ptx::mbarrier_arrive(barriers.empty + ring.slot);
      if (FEW) refill(head);
    }
  };
  if (TAIL && group == TILES)
    work(Bool<true>());
  else
    work(Bool<false>());
}
