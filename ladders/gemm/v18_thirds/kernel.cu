// gemm/v18_thirds: small products in fp32, whose operands are split by the kernel that multiplies them.
//
// Idea      gemm/v13_split splits both operands in a launch of its own, which needs the largest element of each line.
//           That launch and its bytes take most of the time if the product is small, or if c has few rows. Here, the
//           kernel that multiplies also splits. It does not know the largest element of a line, so it cannot use
//           halves: their range is too small. A bfloat has the range of a float, but only 8 significant bits, so a
//           float becomes the sum of three bfloats, its thirds. A product of two floats is then the sum of nine
//           products. Six of them are computed instead of the three of halves. The other three, second by third, third
//           by second and third by third, are below 2^-24 of the product.
//           Two warpgroups load floats into registers and write thirds to shared memory. The third one multiplies.
//           Tensor cores truncate sums, so products of two first thirds have a sum of their own, which is added to the
//           total every 32 terms, with rounding. The other products are at most 2^-7 of these, so the truncation of
//           their sum matters little.
// Layout    as gemm/v5_mma_async, but a and b in float. A stage has the thirds of both tiles, in boxes of 64 lines of
//           64 bfloats, with the swizzle of 128 bytes. A line of a box is a row of a or a column of b if k is adjacent
//           in memory. Otherwise, it has the elements of 64 rows or columns for one k.
// Mapping   a cluster for 64 x 64 or 64 x 128 of c. Its SPLIT blocks share k. Each block has 256 threads that split,
//           with four adjacent floats in every 16th line, and four warps that multiply.
// Roofline  m = n = k = 512: 3 MB, 0.0009 ms at 3.35 TB/s, and six times 0.27 GFLOP, 0.0016 ms at 990 TFLOP/s. Shared
//           memory is slower. For 64 rows, 64 columns and 64 terms, wgmma reads 96 KB, threads write 48 KB, and their
//           loads pass 32 KB through L1: 1,408 clocks at 128 bytes per clock. The products take 768. 64 x 4096 x 4096:
//           69 MB, 0.021 ms.
// Gain      over gemm/v13_split: one launch instead of two. Expected in us on an H100, before shared memory was
//           considered: 512^3, 13 to 6; 512 x 512 x 8192, 111 to 29; 64 x 4096 x 4096, 99 to 24. Found: 8.4, 64 and 39.
// Limits    products for which gemm/v13_split takes longer by a model (variant.py). sm_90a.
// Hazards   wgmma sees the thirds only after fence_proxy_async() by each thread that wrote some. Sums take the place of
//           the stages, so all products must be complete before. No block of a cluster may end while others read its
//           sums. A float from 2^112 on is too large for its thirds, and a sum from 2^96 on is too large once it is
//           scaled by SCALE^2. Then the scaled sum is not finite, and it is computed again in double. A kernel that is
//           launched early must not access global memory before grid_wait(). Only the threads that split call it: the
//           others access global memory after a barrier with these.
// Source    G. Henry, P. Tang, A. Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For
//           Higher-Precision Computations", arXiv:1904.06376; PTX ISA, "wgmma.mma_async", "setmaxnreg".
#include <mini_dnn/sums.cuh>

using Out = sums::Element<OUT_TYPE>;
constexpr float SCALE = 65536.0f;  // of both operands, so that bfloats can hold the thirds of the smallest floats

#include "../v8_final/stage.cuh"
#include "../v9_fp32/plain.cuh"
#include "tiles.cuh"
#include "products.cuh"
#include "finish.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const float* a, const float* b, const Out* c0, Out* c, int m, int n, int k, int a_pitch, int b_pitch,
         int c_pitch, float alpha, float beta) {
  extern __shared__ __align__(1024) char memory[];  // stages, and later partial sums
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES];
  const int rank = blockIdx.x % SPLIT, across = (n + COLUMNS - 1) / COLUMNS;
  const int tiles = (m + ROWS - 1) / ROWS * across;  // in an entry
  const int entry = blockIdx.x / SPLIT / tiles, tile = blockIdx.x / SPLIT - entry * tiles;
  const int row0 = tile / across * ROWS, column0 = tile % across * COLUMNS;
  const int steps = (k + TILE_K - 1) / TILE_K, first = steps * rank / SPLIT, count = steps * (rank + 1) / SPLIT - first;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, SPLITTERS / 32);  // every warp that splits
      ptx::mbarrier_init(empty + i, 4);              // every warp that multiplies
    }
    ptx::fence_proxy_async();
  }
  __syncthreads();  // the barriers of the ring are ready

  Sums total = {};
  if (threadIdx.x < SPLITTERS) {
    ptx::setmaxnreg_dec<136>();
    Floats<ROWS, !A_LINES, A_QUADS> of_a(a + entry * (long long)(A_LINES ? k : m) * a_pitch, a_pitch, row0, m,
                                         first * TILE_K, k);
    Floats<COLUMNS, !B_LINES, B_QUADS> of_b(b + entry * (long long)(B_LINES ? k : n) * b_pitch, b_pitch, column0, n,
                                            first * TILE_K, k);
    auto whole = [&](int step) {
      return row0 + ROWS <= m && column0 + COLUMNS <= n && (first + step + 1) * TILE_K <= k;
    };
    ptx::grid_wait();
    if (whole(0))
      load_all<true>(of_a), load_all<true>(of_b);
    else
      load_all<false>(of_a), load_all<false>(of_b);
    ptx::grid_launch_dependents();
    Stage stage;
#pragma unroll 1
    for (int step = 0; step < count; step++, stage.next()) {
      char* const boxes = memory + stage.index * STAGE_BYTES;
      auto split_and_load = [&](auto next) {
        split_all<next.value>(of_a, boxes);
        split_all<next.value>(of_b, boxes + A_BOXES * BOX_BYTES);
      };
      ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);  // the stage has been multiplied
      if (step + 1 == count)
        split_and_load(std::integral_constant<Next, NONE>());
      else if (whole(step + 1))
        split_and_load(std::integral_constant<Next, WHOLE>());
      else
        split_and_load(std::integral_constant<Next, GUARDED>());
      ptx::fence_proxy_async();  // wgmma reads the thirds
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(full + stage.index);
    }
  } else {
    ptx::setmaxnreg_inc<232>();
    sum_up(total, memory, full, empty, count);
  }

  float* const partial = reinterpret_cast<float*>(memory);
  __syncthreads();  // all stages have been read
  if (threadIdx.x >= SPLITTERS) keep(total, partial);
  if constexpr (SPLIT > 1)
    ptx::cluster_sync();  // the partial sums of all blocks are written
  else
    __syncthreads();
  const long long of_entry = (long long)entry * m * c_pitch;
  store(partial, {a, b, m, n, k, a_pitch, b_pitch}, {c0 + of_entry, c + of_entry, m, n, c_pitch, alpha, beta}, entry,
        row0, column0, rank);
  if constexpr (SPLIT > 1) {  // no block may end while others read its sums
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}
