// gemm/v9_fp32: the accuracy of fp32 at several times its speed, from three products of halves.
//
// Idea      A float is nearly the sum of two halves, high and low, with 11 bits each: a b = high_a high_b + high_a
//           low_b + low_a high_b. The rest is 2^-24 of the product. Halves have the range 6e-8 to 65,504, so each line
//           of an operand is first multiplied by a power of two that brings its largest element to 2^14 (exact, undone
//           at the end). Tensor cores truncate sums, whereas fp32 arithmetic rounds. The errors of truncation all have
//           the same sign and grow with k. The tensor cores therefore add only 64 terms, and these sums are added in
//           registers, with rounding.
// Layout    a (batch,m,k), b (batch,k,n), c0 and c (batch,m,n), row by row; a and b also transposed; pitches from line
//           to line; float. A line is a row of a or a column of b. First, both are split into boxes of 64 lines and 32
//           k: 4 KB of high halves and 4 KB of low ones, in rows of 128 bytes with 128-byte swizzle, box after box
//           along k. If k is the direction of rows, a row has 32 high halves of a line and 32 low ones. If lines are
//           adjacent, a row has 64 lines, and high and low are separate. A line has one factor.
// Mapping   split_rows: a block for each line, which it reads once; split_columns: a block for 64 lines and 64 k, after
//           find_ranges, a separate pass; 8 elements per thread at a time. gemm: as gemm/v7_specialised, with 128 rows
//           and 192 or 128 columns: wide tiles first, and narrow ones if they make the last round shorter (variant.py).
//           A thread has 96 sums of the tensor cores and 96 of its own. A stage of 32 k has 40 KB, and needs 6
//           instructions per warpgroup. This is a third less to load per product than with halves alone.
// Roofline  m = n = k = 4096: 3 x 137 GFLOP, 0.42 ms at 990 TFLOP/s, in practice 0.53 because power lowers the clock;
//           splitting moves 268 MB, 0.063 ms at 4.3 TB/s. Strict fp32, 67 TFLOP/s: 2.05 ms at least.
// Gain      over gemm/v7_specialised: support for floats, at a third of its speed. Over gemm/v3_registers: a factor of
//           5, to 0.62 ms.
// Limits    sm_90a. The halves need as much memory as the operands.
// Hazards   as gemm/v7_specialised. In addition: find_ranges adds to the output of clear, an earlier launch.
//           Halves lose everything below 2^-39 of the largest element of their line. That does not matter if the
//           largest products determine the sum. It does if the largest elements of a row meet zeros or small elements
//           of a column, or the reverse. Let the distance of an element be the number of powers of two from it to the
//           largest element of its line; the distance of a zero is 15. If the mean distances of a row and a column add
//           up to less than 15, one of their products is above 2^13, in units in which a product of the largest
//           elements is 2^28 to 2^30. Then halves lose less than fp32. Otherwise, sums are examined, and computed again
//           in double if they are below 2^13 and if the row or the column is uneven: its nonzero elements are more than
//           2^16 apart. This is slow, but rare. Sums that are not finite are also computed again. Lines with an
//           infinity, a NaN, or a largest element below 2^-104 or from 2^115 on have the factor NaN. All sums of a line
//           with elements from 2^49 on are examined.
// Source    Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
//           theoretical peak performance", 2022; Fasi et al., "Numerical behavior of NVIDIA tensor cores", 2021.
#include <mini_dnn/sums.cuh>

constexpr int CONSUMERS = ROWS / 64, CHUNK = 32;
constexpr int BOX_BYTES = 64 * CHUNK * 2 * 2;
constexpr int A_BYTES = CONSUMERS * BOX_BYTES, B_BYTES = WIDE / 64 * BOX_BYTES;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
static_assert(THREADS == 384 && SPLITTERS == 256, "two warpgroups multiply, a third one copies");

#include "factor.cuh"
#include "range.cuh"
#include "halves.cuh"
#include "split_rows.cuh"
#include "split_columns.cuh"
#include "sum_up.cuh"
#include "plain.cuh"
#include "finish.cuh"
#include "tiles.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const char* a_boxes, const char* b_boxes, const Line* a_known, const Line* b_known, const float* a,
         const float* b, const float* c0, float* c, int m, int n, int k, int a_pitch, int b_pitch, int c_pitch,
         int chunks, int wide, int narrow, int batch, float alpha, float beta) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES];
  const Tiles tiles{(m + ROWS - 1) / ROWS, wide, narrow, batch};
  const int count = tiles.count(), a_lines = tiles.rows * ROWS, b_lines = wide * WIDE + narrow * NARROW;
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

  const Ring ring{memory, full, empty};
  Stage stage;
  int row, column, entry;
  if (warpgroup == CONSUMERS) {
    ptx::setmaxnreg_dec<24>();
    if (threadIdx.x != CONSUMERS * 128) return;
    ptx::grid_wait();
    for (int i = blockIdx.x; i < count; i += gridDim.x) {
      const int b_bytes = (tiles.find(i, row, column, entry) ? WIDE : NARROW) / 64 * BOX_BYTES;
      const char* from_a = a_boxes + (long long)(entry * a_lines + row) / 64 * chunks * BOX_BYTES;
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

  ptx::setmaxnreg_inc<240>();
  const Operands operands{a, b, m, n, k, a_pitch, b_pitch};
  auto make = [&](auto& total) {
    sum_up(total, ring, stage, chunks, warpgroup);
    row += threadIdx.x / 32 * 16;
    const long long of_entry = (long long)entry * m * c_pitch;
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
