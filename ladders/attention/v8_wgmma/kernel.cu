// attention/v8_wgmma: attention/v7_online with the instructions of Hopper: groups of four warps multiply in turn, and
// the copy engine loads their operands.
//
// Idea      wgmma multiplies 64 queries by a block of keys in one instruction and runs asynchronously, so another group
//           of warps can compute exponentials in the meantime. Two warpgroups with 64 queries each share the keys and
//           values of a head. They take turns: one starts its products, which are the scores of a block and the
//           previous block's share of the output, and passes the turn on. While these run, the other one computes
//           exponentials. One more warp requests boxes of keys and values from the copy engine, as long as there is
//           room for them.
// Layout    q, k, v and o (B,H,T,D), or parts of one array (B,T,3,H,D) and o (B,T,H,D), as tensor maps: heads follow
//           each other along z, or along x. Boxes have 64 tokens and 64 columns, in rows of 128 bytes with 128-byte
//           swizzle. A head of 128 columns has two boxes; one of 32 has a box whose second half is unused. Halves, sums
//           in float. Shared memory holds the queries, and STAGES blocks of keys and of values.
// Mapping   block -> GROUPS * 64 queries of a head, one head after the other; warpgroup -> 64 of them; the last
//           warp copies.
// Roofline  32 x 12 heads of 1,025 tokens of 64: 103 GFLOP, 0.13 ms at 800 TFLOP/s; 403 M exponentials, 16 per clock
//           and multiprocessor: 0.11 ms. If they run at the same time, they take as long as the slower one, plus the
//           waits.
// Gain      over attention/v7_online: a factor of 1.3. Products need no instructions for their operands, and
//           exponentials are computed at the same time.
// Limits    halves; sm_90a.
// Hazards   A stage is free when all warps have arrived at its mbarrier. They arrive when they have read its keys and,
//           a step later, its values. Each warpgroup waits for its turn at an mbarrier, at which the warps of the other
//           one arrive. Warpgroup 0 does not wait for its first turn. All lanes must have waited for their turn before
//           one of them passes it on. A warpgroup whose queries are beyond T also performs all steps, because the
//           others depend on it.
// Source    J. Shah et al., "FlashAttention-3", arXiv:2407.08608; PTX ISA, "wgmma", "mbarrier".
#include <mini_dnn/online_softmax.cuh>

constexpr int PARTS = D > 64 ? D / 64 : 1, BOX = 64 * 128;  // adjacent boxes of a tile, and their bytes
constexpr int TILE = PARTS * BOX;
static_assert(KEYS == 64 && THREADS == GROUPS * 128 + 32, "warpgroups, then the warp that copies");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention(const __grid_constant__ ptx::TensorMap q, const __grid_constant__ ptx::TensorMap k,
              const __grid_constant__ ptx::TensorMap v, half* o, int T, int each, int part, float scale) {
  extern __shared__ __align__(1024) char memory[];  // GROUPS tiles of queries; stages of keys and values
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES], q_full, turn[GROUPS];
  const int pieces = (T + GROUPS * 64 - 1) / (GROUPS * 64), head = blockIdx.x / pieces;
  const int first = (pieces - 1 - blockIdx.x % pieces) * GROUPS * 64;  // with a mask, the longest ones start first
  const int keys = CAUSAL ? min(T, first + GROUPS * 64) : T, steps = (keys + KEYS - 1) / KEYS;
  const int x = head % each * D, z = head / each, lane = threadIdx.x % 32;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  char* const stages = memory + GROUPS * TILE;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, GROUPS * 4);  // arrivals: every warp that multiplies
    }
    ptx::mbarrier_init(&q_full, 1);
    for (int i = 0; i < GROUPS; i++) ptx::mbarrier_init(turn + i, 4);
    ptx::fence_proxy_async();
  }
  __syncthreads();  // the mbarriers are initialised

  if (group == GROUPS) {
    if (lane > 0) return;
    ptx::grid_wait();
    ptx::mbarrier_arrive_expect_tx(&q_full, GROUPS * TILE);
    for (int i = 0; i < GROUPS * PARTS; i++)
      ptx::tensor_load(memory + i * BOX, q, x + i % PARTS * 64, first + i / PARTS * 64, z, &q_full);
    for (int step = 0; step < steps; step++) {
      ptx::mbarrier* const ready = full + step % STAGES;
      char *const key_tile = stages + step % STAGES * 2 * TILE, *const value_tile = key_tile + TILE;
      ptx::mbarrier_wait(empty + step % STAGES, step / STAGES % 2 ^ 1);
      ptx::mbarrier_arrive_expect_tx(ready, 2 * TILE);
      for (int i = 0; i < PARTS; i++) {
        ptx::tensor_load(key_tile + i * BOX, k, x + part + 64 * i, step * KEYS, z, ready);
        ptx::tensor_load(value_tile + i * BOX, v, x + 2 * part + 64 * i, step * KEYS, z, ready);
      }
    }
    return;
  }

  const auto queries = ptx::matrix_descriptor_128b(memory + group * TILE, 16, 1024);
  const auto key_tiles = ptx::matrix_descriptor_128b(stages, 16, 1024);
  const auto value_tiles = ptx::matrix_descriptor_128b(stages + TILE, BOX, 1024);
  const int row = first + group * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;  // this thread's first
  OnlineSoftmax<D> rows;
  float s[KEYS / 8][4];
  unsigned p[KEYS / 16][4];
  auto times_keys = [&](int step) {
    const auto tile = key_tiles + step % STAGES * (2 * TILE >> 4);
    ptx::wgmma_scores<KEYS, false>(s, queries, tile);
#pragma unroll
    for (int i = 1; i < D / 16; i++) {
      const int at = (i / 4 * BOX + i % 4 * 32) >> 4;
      ptx::wgmma_scores<KEYS, true>(s, queries + at, tile + at);
    }
  };
  auto plus_values = [&](int step) {
    const auto tile = value_tiles + step % STAGES * (2 * TILE >> 4);
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) ptx::wgmma_values<D>(rows.o, p[i], tile + i * (2048 >> 4), true);
  };
  auto wait_turn = [&](int round) {
    ptx::mbarrier_wait(turn + group, round % 2 ^ (group == 0));
    ptx::wgmma_fence();
  };
  auto pass_turn = [&]() {
    ptx::wgmma_commit();
    __syncwarp();  // all lanes have had their turn
    if (lane == 0) ptx::mbarrier_arrive(turn + (group + 1) % GROUPS);
  };
  auto weigh = [&](int step) { rows.weigh<KEYS>(s, p, scale, T - step * KEYS, CAUSAL ? row + 1 - step * KEYS : T); };

  ptx::mbarrier_wait(&q_full, 0);
  ptx::mbarrier_wait(full, 0);
  wait_turn(0);
  times_keys(0);
  pass_turn();
  ptx::wgmma_wait<0>(s);
  weigh(0);
  for (int step = 1; step < steps; step++) {
    ptx::mbarrier_wait(full + step % STAGES, step / STAGES % 2);
    wait_turn(step);
    times_keys(step);
    plus_values(step - 1);
    pass_turn();
    ptx::wgmma_wait<0>(s);
    ptx::wgmma_wait<0>(rows.o);
    if (lane == 0) ptx::mbarrier_arrive(empty + (step - 1) % STAGES);
    weigh(step);
  }
  wait_turn(steps);
  plus_values(steps - 1);
  pass_turn();
  ptx::wgmma_wait<0>(rows.o);
  const int pitch = each * D;  // of the output
  rows.store(o + ((long long)z * T + row) * pitch + x, T - row, pitch);
}
