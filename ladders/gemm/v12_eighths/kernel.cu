// gemm/v12_eighths: gemm/v8_final without a copy of a where its rows start anywhere.
#include <mini_dnn/lines.cuh>
#include <mini_dnn/ptx_columns.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

constexpr int CONSUMERS = ROWS / 64;
constexpr bool ALIKE = HIGH == SHARE * ROWS;  // all rows of a cluster are of one eighth
constexpr int WINDOW = ALIKE ? TILE_K : TILE_K + 8;  // of k in a stage of b; wherever rows start, their k are among them
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
