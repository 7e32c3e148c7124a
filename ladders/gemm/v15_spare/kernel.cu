// gemm/v15_spare: gemm/v13_split with nearly all splitting while tiles are multiplied.
//
// Idea      4096^3 is six rounds of tiles on 128 multiprocessors, and on 132. Therefore four of them have time to split
//           columns of b, and b need not be split before the first tile. A column's factor needs its largest element,
//           so a block splits a strip of columns: it reads the strip twice, the second time from L2. Rows of a are
//           split in parts of 1024 terms, each with its own factor. A part stays in the registers of a warp, and the
//           first tiles need only the first part. Before the product, only the first part of a and the columns of the
//           first round are split.
// Layout    as gemm/v13_split, but a row of a has a factor for each part.
// Mapping   split_columns (of gemm/v13_split) and split_parts, a warp for a part of a row, before the product. gemm:
// the
//           first SPARE blocks split the other columns, strip by strip. Of each other block, two warpgroups multiply,
//           one warp copies, and three warps split the other parts of a. Strips and parts are split in the order in
//           which tiles need them; flags say which are ready. Between two parts, sums are multiplied by the quotient
//           of their factors.
// Roofline  as gemm/v13_split; m = n = k = 4096 splits 46 MB before the product, 0.015 ms at 3 TB/s, and 222 MB beside
// it. Gain      over gemm/v13_split: 7 % at 4096^3, to 0.575 ms. Limits    as gemm/v13_split. It calls that for
// operands that are transposed, batches, and products of few rounds. Hazards   as gemm/v13_split. In addition: blocks
// wait for the spare ones, which wait for nobody. They are the first
//           blocks, and blocks start in order.
// Source    as gemm/v13_split; online softmax has sums that change their factor.
#include <mini_dnn/sums.cuh>

constexpr int CONSUMERS = ROWS / 64, CHUNK = 32;
constexpr int BOX_BYTES = 64 * CHUNK * 2 * 2;
constexpr int A_BYTES = CONSUMERS * BOX_BYTES, B_BYTES = WIDE / 64 * BOX_BYTES;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int PART_CHUNKS = PART / CHUNK;
static_assert(THREADS == 384 && SPLITTERS == 256, "two warpgroups multiply, a third one copies");
static_assert(PART_CHUNKS % 2 == 0, "sums of two chunks are promoted together");

#include "../v9_fp32/halves.cuh"
#include "../v13_split/range.cuh"
#include "../v13_split/write_part.cuh"
#include "../v13_split/split_32.cuh"
#include "split_parts.cuh"
#include "split_first.cuh"
#include "split_strips.cuh"
#include "late.cuh"
#include "../v9_fp32/sum_up.cuh"
#include "../v13_split/finish.cuh"
#include "tiles.cuh"

// The units of the sums of a tile become those of the next part of their rows.
template <int groups>
__device__ __forceinline__ void change_units(float (&total)[groups][4], const float* factors, int lines) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float quotient = factors[8 * h] / factors[lines + 8 * h];  // a power of two: exact
#pragma unroll
    for (int i = 0; i < groups; i++) total[i][2 * h] *= quotient, total[i][2 * h + 1] *= quotient;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(uint4* a_boxes, uint4* b_boxes, float* a_factors, float* b_factors, int* a_ranges, int* b_ranges, int* flags,
         const float* a, const float* b, const __grid_constant__ ptx::TensorMap a_map,
         const __grid_constant__ ptx::TensorMap b_map, const float* c0, float* c, int m, int n, int k, int a_pitch,
         int b_pitch, int c_pitch, int chunks, int wide, int narrow, int early_rows, int early_columns, float alpha,
         float beta) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES], loaded[Strips::DEPTH];
  const Tiles tiles{(m + ROWS - 1) / ROWS, wide, narrow};
  const int count = tiles.count(), a_lines = tiles.rows * ROWS, b_lines = wide * WIDE + narrow * NARROW;
  const int parts = (chunks + PART_CHUNKS - 1) / PART_CHUNKS, multipliers = gridDim.x - SPARE;
  const Late late{{a_boxes, a_factors, a_ranges, chunks, a_lines}, flags, parts, early_rows, early_columns};
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, CONSUMERS * 4);
    }
    for (int i = 0; i < Strips::DEPTH; i++) ptx::mbarrier_init(loaded + i, 1);
    ptx::fence_proxy_async();
  }
  __syncthreads();
  ptx::grid_launch_dependents();
  ptx::grid_wait();
  if (blockIdx.x < SPARE) {
    Strips strips{b_map, memory, loaded, b_boxes, b_factors, b_ranges, chunks, wide};
    for (int i = early_columns / 64 + blockIdx.x; i < b_lines / 64; i += SPARE) {
      strips.split(i);
      late.publish(i);
    }
    return;
  }

  const Ring ring{memory, full, empty};
  Stage stage;
  int row, column;
  if (warpgroup == CONSUMERS) {
    ptx::setmaxnreg_dec<88>();
    if (const int splitter = threadIdx.x / 32 - CONSUMERS * 4 - 1; splitter >= 0)
      late.split(a_map, reinterpret_cast<float*>(memory + STAGES * STAGE_BYTES) + splitter * 2048,
                 loaded + splitter * 2);
    if (threadIdx.x != CONSUMERS * 128) return;
    for (int i = blockIdx.x - SPARE; i < count; i += multipliers) {
      const int columns = tiles.find(i, row, column) ? WIDE : NARROW, b_bytes = columns / 64 * BOX_BYTES;
      late.wait_for_columns(column, columns);
      const char* from_a = reinterpret_cast<const char*>(a_boxes) + (long long)row / 64 * chunks * BOX_BYTES;
      const char* from_b = reinterpret_cast<const char*>(b_boxes) + (long long)column / 64 * chunks * BOX_BYTES;
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; chunk++, stage.next(), from_a += A_BYTES, from_b += b_bytes) {
        if (chunk % PART_CHUNKS == 0) late.wait_for_rows(row, chunk / PART_CHUNKS);
        ptx::mbarrier* const ready = full + stage.index;
        ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(ready, A_BYTES + b_bytes);
        ptx::bulk_load(ring.a(stage.index), from_a, A_BYTES, ready);
        ptx::bulk_load(ring.b(stage.index), from_b, b_bytes, ready);
      }
    }
    return;
  }

  ptx::setmaxnreg_inc<208>();
  const Operands operands{a, b, m, n, k, a_pitch, b_pitch};
  auto make = [&](auto& total) {
    row += threadIdx.x / 32 * 16;
#pragma unroll 1
    for (int part = 0; part < parts; part++) {
      ptx::mbarrier_wait(full + stage.index, stage.parity);  // so the part's factors have been stored, too
      if (part > 0) change_units(total, a_factors + (part - 1) * a_lines + row + threadIdx.x % 32 / 4, a_lines);
      sum_up(total, ring, stage, min(PART_CHUNKS, chunks - part * PART_CHUNKS));
    }
    finish(total, operands, {a_factors, a_ranges, parts, a_lines}, {b_factors, b_ranges},
           sums::Matrix<float>{c0, c, m, n, c_pitch, alpha, beta}, 0, row, column);
  };
  for (int i = blockIdx.x - SPARE; i < count; i += multipliers) {
    if (tiles.find(i, row, column)) {
      float total[WIDE / 8][4] = {};
      make(total);
    } else {
      float total[NARROW / 8][4] = {};
      make(total);
    }
  }
}
