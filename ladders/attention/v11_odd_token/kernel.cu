// attention/v11_odd_token: attention/v9_final for 64 n + 1 tokens; the odd key, query and tile are separate.
//
// Idea      577 and 1,025 tokens are 64 n patches and one token for the class, the odd token. attention/v9_final
//           computes its query separately, but its key costs all warpgroups a round, or a longer block. (A power is the
//           exponential of a score minus its row's reference.)
//           - An item begins with the odd key: its scores are a product with 8 keys, and the sums and the output start
//             with its power and its power times its value, instead of 0.
//           - The odd query takes half as many instructions, because a warp processes 32 keys at a time, and only one
//             query.
//           - If the number of tiles of a head is not a multiple of three, one tile is left over. All warpgroups share
//             it: each processes every third block of keys, and the results are added at the end. This takes about half
//             of the time of three tiles, so two such tiles form a unit of work.
//           - Powers are added as halves, two at a time.
//           - No unit is busy all the time, so the time from powers to their products counts: warpgroups test early
//             whether turns and blocks have come, and do other work while products run.
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
// Hazards   As attention/v9_final, also for the rows of queries that a warp replaces. In addition:
//           - A warpgroup takes its turn even if it has no block of a split tile left and the others have one.
//           - Results of a split tile pass through the places of queries that do not exist.
//           - The product with the odd key is a group of its own. If it were in the group of the first scores, its sums
//             would make the compiler serialise all products (ptxas reports C7511).
//           - mbarrier_try_wait may sleep, so no early test uses it.
// Source    J. Shah et al., "FlashAttention-3", arXiv:2407.08608; PTX ISA, "wgmma", "mma.sync".
#include "attend.cuh"
#include "odd_rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention(const __grid_constant__ ptx::TensorMap q_map, const __grid_constant__ ptx::TensorMap k_map,
              const __grid_constant__ ptx::TensorMap v_map, const __grid_constant__ ptx::TensorMap o_map,
              const __grid_constant__ ptx::TensorMap odd_q_map, const __grid_constant__ ptx::TensorMap odd_k_map,
              const __grid_constant__ ptx::TensorMap odd_v_map, half* o, int full, int heads, int each, int part,
              float scale) {
  attend<OddRows>({q_map, k_map, v_map, odd_q_map, odd_k_map, odd_v_map}, o_map, o, full, heads, {each, part}, scale);
}
