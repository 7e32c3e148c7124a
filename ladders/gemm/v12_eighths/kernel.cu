// gemm/v12_eighths: gemm/v8_final without a copy of a where its rows start anywhere.
//
// Idea      The copy engine needs rows that start at multiples of 16 bytes, so gemm/v8_final first copies an a with an
//           odd k, which takes a tenth of the time of 4095 x 4095 x 4095. But rows e, e + 8, e + 16, ... of it, an
//           eighth, are 16 k bytes apart, and all of them start at the same place in a piece of 16 bytes. To the engine
//           eight rows are therefore one, in which an eighth starts at one place. This place is rounded down to a
//           multiple of 16 bytes, so that what a box has is shift elements late, 0 to 7 of them. The sums need no
//           shifted a: they need as many rows of b before, and a tile of b may begin with any row. What a box has of
//           the rows beside is multiplied by rows of b that do not exist, which the engine reads as zeros. Only b is
//           copied, if n is odd, too. Rows of c of an eighth also start at one place. Sums move to it in registers, and
//           leave by tensor copies; threads only store the ends of rows.
// Layout    as gemm/v8_final. HIGH is how many rows of an eighth follow each other: 64, so that a warpgroup has a part
// of
//           one eighth, or all rows of a cluster. With 64, warpgroups need different rows of b: a stage has 8 rows
//           more, and a warpgroup's descriptor begins with the row that it needs.
// Mapping   as gemm/v8_final, for one kind of tile: 128 x 256, clusters of two blocks below each other that share b.
// Roofline  m = n = k = 4095: 137 GFLOP, 0.14 ms at 990 TFLOP/s, in practice 0.18 because power lowers the clock. The
//           copy of b, 67 MB, takes 0.018 ms; a would take as long.
// Gain      over gemm/v8_final, in us on an H100, expected and measured: 4095 x 4095 x 4095, 228 to 207 and GAIN.
// Limits    16 bits, sm_90a, neither operand transposed, one product, no gaps behind rows of a. An infinity or NaN in a
//           also makes NaN of the rows of c above and below. Each eighth needs many rows: tiles of few are mostly
//           empty. All other problems are a call of gemm/v10_small.
// Hazards   as gemm/v8_final. In addition: a descriptor that begins with any row needs the swizzle of addresses, as in
//           ptx::matrix_descriptor_128b_lines. A tensor copy must not store a piece that belongs to two tiles in part.
// Source    PTX ISA, "cp.async.bulk.tensor", "Asynchronous Warpgroup Level Matrix Instructions".
#include <mini_dnn/lines.cuh>
#include <mini_dnn/ptx_columns.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

constexpr int CONSUMERS = ROWS / 64;
constexpr bool ALIKE = HIGH == SHARE * ROWS;  // all rows of a cluster are of one eighth
constexpr int WINDOW =
    ALIKE ? TILE_K : TILE_K + 8;  // of k in a stage of b; wherever rows start, their k are among them
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
