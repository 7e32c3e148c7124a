// gemm/v8_final: gemm/v7_specialised for every shape: clusters, split sums, small tiles, odd pitches, vectors.
//
// Idea      The remaining gains are outside the main loop:
//           - Two blocks form a cluster. Each loads half of the columns of b that both need, for both (multicast), so
//             L2 delivers a third less.
//           - If there are fewer tiles than multiprocessors, tiles are smaller, or a cluster shares the k of a tile and
//             adds its sums in shared memory.
//           - The copy engine requires lines that start at multiples of 16 bytes. Other operands are first copied to
//             such lines, both in one launch. If that takes longer than the product, warpgroups load them by hand: they
//             load two aligned pieces of 16 bytes for each eight elements, and shift them in registers.
//           - c is stored from shared memory, for any pitch.
//           - A product with a vector uses no tensor cores, because it reads each element of the matrix only once.
//           - A kernel that is launched early is set up while the previous one ends, and waits before it reads.
//           variant.py chooses among all of these by a model of the time.
// Layout    as gemm/v7_specialised. The SHARE blocks of a cluster are below each other and share b: block i loads the
//           i-th part of the boxes of each tile of b. If blocks share k, each of SPLIT blocks has a part of the steps.
//           Boxes that are loaded by hand, 64 lines of 64 elements, have the layout of the engine. Copies have lines of
//           whole cache lines.
// Mapping   a block on each multiprocessor; ROWS / 64 warpgroups consume; one warp produces, or LOADERS warpgroups
//           produce by hand, with alternating stages. Tiles are processed in bands of BAND rows of clusters, column by
//           column. Vectors: a warp for a line, or a block for 64 of them.
// Roofline  m = n = k = 4096: 137 GFLOP, 0.14 ms at 990 TFLOP/s, in practice 0.175 because power lowers the clock. L2
//           delivers 32 KB for 1,024 clocks of products. 512: 3 us, most of it for the launch and the first loads.
//           Copies of odd operands: 0.034 ms at 4095.
// Gain      over gemm/v7_specialised: none at 4096, where both are as fast as cuBLAS; a factor of 2.2 at 512 and 1024;
//           support for odd sizes.
// Limits    16 bits, sm_90a. Operands that are loaded by hand need pitches below 2^24.
// Hazards   as gemm/v7_specialised. In addition:
//           - A stage is free when the consumers of both blocks have read it, because each of the two blocks fills
//             stages of both. A warp that has read a stage therefore arrives at the mbarriers of both blocks. This
//             arrival is relaxed, because it publishes nothing, whereas a release would be a fence of the whole GPU.
//           - No block may exit while another one writes to it, or arrives there.
//           - An address in a cluster has the rank of the block in its upper bits. A matrix descriptor has no room for
//             them, so it needs the address within the block.
//           - A kernel that is launched early must not access global memory before grid_wait(): producers wait, and the
//             others wait for them.
//           - wgmma sees the writes of threads to a stage only after fence_proxy_async() by each of them.
//           - If an operand ends within a piece of 16 bytes, this piece is not read as a whole.
// Source    PTX ISA, "cp.async.bulk.tensor" (multicast), "st.async", "griddepcontrol"; CUTLASS, "Efficient GEMM in
//           CUDA".
#include <mini_dnn/lines.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

// ---- The product of matrices

constexpr int CONSUMERS = ROWS / 64, CLUSTER = SHARE * SPLIT, BOX_BYTES = 64 * TILE_K * 2;  // a box: 64 rows or columns
constexpr int A_BYTES = ROWS * TILE_K * 2, B_BYTES = COLUMNS * TILE_K * 2;
constexpr int GROUPS = COLUMNS / 8, PART = GROUPS / SPLIT;   // of 8 columns; those that a block adds up
constexpr int STAGED_BYTES = 4096;                           // of a warp
constexpr int SLOT = CONSUMERS * 128;                        // four sums from another block: a place for each thread
constexpr int PRODUCERS = LOADERS > 0 ? LOADERS * 128 : 32;  // threads: warpgroups that load, or a warp
static_assert(TILE_K == 64 && THREADS == CONSUMERS * 128 + PRODUCERS, "consumers, then producers");
static_assert(LOADERS == 0 || (SHARE == 1 && ROWS == COLUMNS), "pairs of boxes, not multicast");
static_assert(SHARE == 1 || SPLIT == 1, "a cluster shares columns of b, or k");
static_assert(COLUMNS / 64 % SHARE == 0 && GROUPS % SPLIT == 0, "equal parts");

#include "stage.cuh"
#include "tiles.cuh"
#include "add_up.cuh"
#include "loads.cuh"
#include "operand.cuh"
#include "by_hand.cuh"
#include "block.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ ptx::TensorMap a, const __grid_constant__ ptx::TensorMap b,
         const __grid_constant__ ptx::TensorMap c_map, const Out* c0, Out* c, int m, int n, int k, int c_pitch,
         int batch, float alpha, float beta) {
  if constexpr (LOADERS == 0) product(TensorLoads{a, b}, &c_map, c0, c, m, n, k, c_pitch, batch, alpha, beta);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_by_hand(const lines::Bits* a, const lines::Bits* b, const Out* c0, Out* c, int m, int n, int k, int a_pitch,
                 int b_pitch, int c_pitch, int batch, float alpha, float beta) {
  if constexpr (LOADERS > 0) {
    auto lying = [=](const lines::Bits* from, int lines, int length, int pitch) {
      return Lines{from, lines, length, pitch, (((long long)batch * lines - 1) * pitch + length) / 8 * 8};
    };
    const LoadsByHand loads{A_TURNED ? lying(a, k, m, a_pitch) : lying(a, m, k, a_pitch),
                            B_TURNED ? lying(b, n, k, b_pitch) : lying(b, k, n, b_pitch)};
    product(loads, nullptr, c0, c, m, n, k, c_pitch, batch, alpha, beta);
  }
}

#include "repitch.cuh"
#include "vector.cuh"
#include "rows.cuh"
#include "columns.cuh"
