// gemm/w1_rounds
#include <mini_dnn/lines.cuh>
#include <mini_dnn/ptx_widths.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;
constexpr int A_BYTES = ROWS * TILE_K * 2, B_BYTES = COLUMNS * TILE_K * 2, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int BOX_BYTES = 64 * TILE_K * 2;  // of 64 columns of b
constexpr int WARPGROUPS = COLUMNS / 64, GROUPS = ROWS / 8;
constexpr int LOADER_OF_A = WARPGROUPS * 128, LOADER_OF_B = LOADER_OF_A + 32;  // threads
#include "../v8_final/stage.cuh"
#include <climits>
constexpr int SPLIT = 1, PART = 1, SLOT = 1;
#include "../v8_final/tiles.cuh"
#include "../v11_ahead/ring.cuh"
#include "../v11_ahead/rounds.cuh"
