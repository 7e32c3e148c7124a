// gemm/v13_split: gemm/v9_fp32 with less time for splitting, and less power for products.
//
// Idea      Before gemm/v9_fp32 multiplies, it splits both operands into halves, which takes a sixth of the time at
//           4096^3.
//           - It reads a column of b twice: once to find its largest element, and once to split it. Here, the blocks of
//             a cluster share a column. Each keeps its part in registers while they exchange their largest elements, so
//             b is read once.
//           - Both operands are split by one launch instead of four.
//           - Most rows of a are split while others are multiplied: the warpgroup that copies has three idle warps.
//           - If there are few tiles, they have 64 columns, so that more multiprocessors work.
//           The products then run at the GPU's limit of power, which depends on the bits that are multiplied. (If all
//           low halves are zero, the same instructions take 11 % less time.) From 2048 terms on, low halves therefore
//           have 8 significant bits instead of 11. This adds errors of 2^-20 of a term, which do not depend on k, while
//           those of fp32 sums grow with its square root: for 4096 terms, they are still twice as large. A sum of which
//           only a few terms are not zero has these errors as well, so a times the identity is only right to 1e-6.
// Layout    as gemm/v9_fp32.
// Mapping   split_both: a cluster for 32 columns, whose blocks share k; a block for two rows. gemm: as gemm/v9_fp32.
//           The three warps split the rows of a beyond the first band of tiles (split_late.cuh). A flag for each 128
//           rows says that they are ready.
// Roofline  as gemm/v9_fp32: m = n = k = 4096 takes 0.54 ms for the product, and splitting moves 268 MB, 168 MB of them
//           before the product: 0.04 ms at 4.3 TB/s.
// Gain      over gemm/v9_fp32: to 0.60 ms at 4096^3, because b is read once, and 100 MB of rows are moved while others
//           are multiplied. Low halves of 8 bits gain 1.3 % more. At 1024^3, where half of the multiprocessors have
//           nothing to do with tiles of 128 columns, to 0.022 ms.
// Limits    as gemm/v9_fp32. Rows are split late if a is not transposed, if there is one entry in the batch, and if the
//           next rows are ready in time: with at least 2048 columns. Otherwise all of them are split before.
// Hazards   as gemm/v9_fp32. In addition: plain stores are ordered before the flag of their rows by a fence of the GPU,
//           and before reads of the copy engine by a fence between proxies, on both sides. Blocks that wait for each
//           other would never end if not all of them ran at once. Here, rows come from a queue, so that a running block
//           splits whatever another one waits for.
// Source    as gemm/v9_fp32; CUDA C++ Programming Guide, "Thread Block Clusters"; PTX ISA, "fence.proxy".
#include <mini_dnn/sums.cuh>

constexpr int CONSUMERS = ROWS / 64, CHUNK = 32;
constexpr int BOX_BYTES = 64 * CHUNK * 2 * 2;
constexpr int A_BYTES = CONSUMERS * BOX_BYTES, B_BYTES = WIDE / 64 * BOX_BYTES;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
static_assert(THREADS == 384 && SPLITTERS == 256, "two warpgroups multiply, a third one copies");

#include "../v9_fp32/factor.cuh"
#include "../v9_fp32/range.cuh"
#include "../v9_fp32/halves.cuh"
#include "split.cuh"
#include "split_late.cuh"
#include "../v9_fp32/sum_up.cuh"
#include "../v9_fp32/plain.cuh"
#include "../v9_fp32/finish.cuh"
#include "../v9_fp32/tiles.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(uint4* a_boxes, const char* b_boxes, Line* a_known, const Line* b_known, int* flags, const float* a,
         const float* b, const float* c0, float* c, int m, int n, int k, int a_pitch, int b_pitch, int c_pitch,
         int chunks, int wide, int narrow, int batch, int late_rows, float alpha, float beta) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES];
  const Tiles tiles{(m + ROWS - 1) / ROWS, wide, narrow, batch};
  const int count = tiles.count(), a_lines = tiles.rows * ROWS, b_lines = wide * WIDE + narrow * NARROW;
  const Late late{a, a_boxes, a_known, flags, m, k, a_pitch, chunks, a_lines * batch - late_rows, a_lines * batch};
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, CONSUMERS * 4);
    }
    ptx::fence_proxy_async();
  }
  __syncthreads();
  ptx::grid_launch_dependents();
  ptx::grid_wait();

  const Ring ring{memory, full, empty};
  Stage stage;
  int row, column, entry;
  if (warpgroup == CONSUMERS) {
    ptx::setmaxnreg_dec<72>();
    if (threadIdx.x / 32 > CONSUMERS * 4 && late_rows > 0) late.split();
    if (threadIdx.x != CONSUMERS * 128) return;
    for (int i = blockIdx.x; i < count; i += gridDim.x) {
      const int b_bytes = (tiles.find(i, row, column, entry) ? WIDE : NARROW) / 64 * BOX_BYTES;
      late.wait(entry * a_lines + row);
      __threadfence();
      fence_proxy_async_global();  // only now may the copy engine read
      const char* from_a =
          reinterpret_cast<const char*>(a_boxes) + (long long)(entry * a_lines + row) / 64 * chunks * BOX_BYTES;
      const char* from_b = b_boxes + (long long)(entry * b_lines + column) / 64 * chunks * BOX_BYTES;
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; chunk++, stage.next(), from_a += A_BYTES, from_b += b_bytes) {
        ptx::mbarrier* const ready = full + stage.index;
        ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(ready, A_BYTES + b_bytes);
        ptx::bulk_load(ring.a(stage.index), from_a, A_BYTES, ready);
        ptx::bulk_load(ring.b(stage.index), from_b, b_bytes, ready);
      }
    }
    return;
  }

  ptx::setmaxnreg_inc<216>();
  auto make = [&](auto& total) {
    sum_up(total, ring, stage, chunks, warpgroup);
    // The rows have been split: the thread that loads has waited for them before it arrived at the mbarriers.
    row += threadIdx.x / 32 * 16;
    const long long of_entry = (long long)entry * m * c_pitch;
    const Operands operands{a, b, m, n, k, a_pitch, b_pitch};
    finish(total, operands, a_known + entry * a_lines, b_known + entry * b_lines,
           sums::Matrix<float>{c0 + of_entry, c + of_entry, m, n, c_pitch, alpha, beta}, entry, row, column);
  };
  for (int i = blockIdx.x; i < count; i += gridDim.x) {
    if (tiles.find(i, row, column, entry)) {
      float total[WIDE / 8][4] = {};
      make(total);
    } else {
      float total[NARROW / 8][4] = {};
      make(total);
    }
  }
}
