// gemm/v12_eighths: gemm/v8_final without a copy of a whose rows are not aligned.
//
// Idea      The copy engine needs rows that start at multiples of 16 bytes, so gemm/v8_final first copies a if k is
//           odd. At 4095 x 4095 x 4095 this takes a tenth of the time. However, rows e, e + 8, e + 16, ... are 8 k
//           elements apart, a multiple of 16 bytes. They are an eighth of the rows, and all of them start at the same
//           distance from a multiple of 16 bytes.
//           - a is read in place. A tensor map describes eight rows as one long row, in which the rows of an eighth
//             start at a fixed place. A box must begin at a multiple of 16 bytes, up to 7 elements before its row, so a
//             stays shifted in shared memory.
//           - The box of b begins as many rows earlier to match it, because a box may begin with any row. A box of a
//             also has elements of other rows. They are multiplied by rows of b before the first or after the last one,
//             which the engine reads as zeros. b is copied only if n is odd, too.
//           - The rows of c of an eighth also start at the same distance from a multiple of 16 bytes: the sums are
//             shifted in registers, and tensor copies store them. Threads store only the ends of rows.
// Layout    as gemm/v8_final. HIGH rows of an eighth follow each other: all rows of a cluster, or the 64 rows of a
//           warpgroup. In the second case, eighths need different rows of b, so a stage has 8 rows more, and the
//           descriptor of a warpgroup begins with the row that it needs.
// Mapping   as gemm/v8_final, with one kind of tile: 128 x 256, in clusters of two blocks below each other.
// Roofline  m = n = k = 4095: 137 GFLOP, 0.14 ms at 990 TFLOP/s, in practice 0.18 because power lowers the clock. The
//           copy of b, 67 MB, takes 0.018 ms, and one of a would take as long.
// Gain      over gemm/v8_final, expected in us on an H100: 4095 x 4095 x 4095, 228 to 207; 3954 x 1020 x 3171, where
//           only b is small, 55 to 44. Half of the first gain was missing until tensor copies stored c.
// Limits    16 bits, sm_90a, no operand transposed, one product, no gaps between rows of a. An infinity or NaN in a
//           also affects the rows of c above and below. m / 8 rows should fill tiles. Other problems are a call of
//           gemm/v11_ahead.
// Hazards   as gemm/v8_final. In addition: a descriptor that begins with any row needs the swizzle of addresses, as in
//           ptx::matrix_descriptor_128b_lines. A piece of 16 bytes at the border of two tiles belongs to both, so no
//           tensor copy may store it. A box that lies outside of its tensor is slow, so none is loaded.
// Source    PTX ISA, "cp.async.bulk.tensor", "Asynchronous Warpgroup Level Matrix Instructions".
#include <mini_dnn/lines.cuh>
#include <mini_dnn/ptx_columns.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

constexpr int CONSUMERS = ROWS / 64;
constexpr bool ALIKE = HIGH == SHARE * ROWS;                     // all rows of a cluster are of one eighth
constexpr int WINDOW = ALIKE ? TILE_K : TILE_K + 8;              // terms in a stage of b: enough for any start of rows
constexpr int A_BOX = 64 * TILE_K * 2, B_BOX = WINDOW * 64 * 2;  // bytes: 64 rows, 64 columns
constexpr int A_BYTES = CONSUMERS * A_BOX, B_BYTES = COLUMNS / 64 * B_BOX;
constexpr int GROUPS = COLUMNS / 8;  // of 8 columns
static_assert(TILE_K == 64 && THREADS == CONSUMERS * 128 + 32, "consumers, then a warp that copies");
static_assert(COLUMNS / 64 % SHARE == 0 && 8 * HIGH % (SHARE * ROWS) == 0 && HIGH % 64 == 0, "equal parts");

#include "../v8_final/stage.cuh"
#include "../v8_final/tiles.cuh"
#include "eighth.cuh"
#include "loads.cuh"
#include "store.cuh"
#include "block.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_eighths(const __grid_constant__ ptx::TensorMap a_more, const __grid_constant__ ptx::TensorMap a_less,
                 const __grid_constant__ ptx::TensorMap b, const __grid_constant__ ptx::TensorMap c_more,
                 const __grid_constant__ ptx::TensorMap c_less, const Out* c0, Out* c, int m, int n, int k, int c_pitch,
                 float alpha, float beta) {
  product(Eighths{m, n, k}, Maps{a_more, a_less, b, c_more, c_less}, c0, c, c_pitch, alpha, beta);
}

#include "../v8_final/repitch.cuh"
