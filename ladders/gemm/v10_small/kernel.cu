// gemm/v10_small: gemm/v8_final for products that have few tiles, short sums or few rows, or a matrix that is read
// once.
//
// Idea      Four kinds of products take longer than necessary in gemm/v8_final:
//           1. Few tiles. wgmma has 64 rows or more, so a small product has few tiles. The multiprocessors that have
//              one load for long, while the others have nothing to do. Small tiles of 16 rows use cp.async and mma.sync
//              as in gemm/v5_mma_async, with a k of up to 512 in flight at once (small.cuh).
//           2. Short sums or few rows, and lines of a or b that start anywhere. Copies to aligned lines would take
//              longer than the product. Tiles of 16 to 64 rows load pieces of 16 bytes, and shift them in registers.
//              Several blocks share a multiprocessor, so that it has work while some of them wait (anywhere.cuh).
//           3. Few tiles, and a k of thousands of terms. PARTS blocks share the k of a tile. They store their sums in
//              memory, and a second kernel adds them. A cluster would start later, and not every number of clusters
//              fits (add.cuh; parts.cuh for aligned lines).
//           4. A vector and a matrix. A thread loads 8 pieces of 16 bytes before it adds any (vectors.cuh).
//           Every other problem is a call of gemm/v8_final. variant.py chooses by a model of the time.
// Layout    as gemm/v8_final. Small tiles and those that start anywhere: lines of up to 128 elements, whose parts of 16
//           bytes are swizzled. Sums of parts are whole tiles of floats.
// Mapping   Small tiles: a block of four warps for each, a warp for 16 of every 64 k. Anywhere: four warps, each with
//           16 rows or with a part of the columns. Parts: a block on each multiprocessor; one warpgroup consumes, and a
//           warp produces; then a thread for four columns. Columns: a cluster for a strip of 64, 128 or
//           256 of them, whose up to 8 blocks share k. Rows: a warp for each.
// Roofline  m = n = k = 256: 0.4 MB, 0.0001 ms; a product of one tile and 8 of k takes 0.0017 ms. 512 x 512 x 8192: 4.3
//           GFLOP, 0.005 ms at 990 TFLOP/s. Each of 128 blocks takes in 786 KB, 0.008 ms at 55 bytes per clock, and 4
//           MB of sums are written and read. 3383 x 561 x 25: 4 MB, 0.0012 ms at 3.35 TB/s. 3 x 2308 x 3118: 14 MB,
//           0.0043 ms. 1 x 4096 x 4096: 34 MB, 0.0100 ms.
// Gain      over gemm/v8_final, expected in us on an H100: 128, 2.44 to 2.1, because each of 64 blocks loads 8 KB, and
//           not each of 4 blocks 32 KB; 256, 2.73 to 2.3; 512 x 512 x 8192, 15.8 to 12; 3 x 2308 x 3118, 16.4 to 8.5;
//           3383 x 561 x 25, 7.8 to 3.9, which neglects that each warp needs a thousand instructions. Found for
//           vectors: 1 x 4096 x 4096, 15.5 to 13.4; 1 x 1001 x 999, 18.0 to 3.4; 8192 x 1 x 8192, 52.7 to 46.6.
// Limits    16 bits, sm_90a. Tiles that start anywhere need pitches below 2^23. The other kernels, except for columns,
//           need lines that start at multiples of 16 bytes.
// Hazards   as gemm/v7_specialised and gemm/v5_mma_async. In addition: sums take the place of the stages of a small
//           tile, so all warps must have read the last stage before. A kernel that is launched early must not access
//           global memory before grid_wait(). Small tiles let the next kernel start only after their loads have
//           started: otherwise blocks of several later kernels, which only wait, take the places of those that work.
// Source    PTX ISA, "cp.async", "mma.sync", "griddepcontrol"; CUTLASS, "Efficient GEMM in CUDA" (split-k).
#include "tiles.cuh"
#include "vectors.cuh"

#if KIND == SMALL
#include "small.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_small(const lines::Bits* a, const lines::Bits* b, const Out* c0, Out* c, int m, int n, int k, int a_pitch,
               int b_pitch, int c_pitch, float alpha, float beta) {
  extern __shared__ __align__(1024) char stages_then_sums[];
  small::product(stages_then_sums, a, b, c0, c, m, n, k, a_pitch, b_pitch, c_pitch, alpha, beta);
}

#elif KIND == ANYWHERE
#include "anywhere.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    gemm_anywhere(const lines::Bits* a, const lines::Bits* b, float* partial, const Out* c0, Out* c, int m, int n,
                  int k, int a_pitch, int b_pitch, int c_pitch, int batch, float alpha, float beta) {
  extern __shared__ __align__(1024) char stages_then_rows[];
  auto lying = [=](const lines::Bits* from, int lines, int length, int pitch) {
    return Lines{from, lines, length, pitch, (((long long)batch * lines - 1) * pitch + length) / 8 * 8};
  };
  anywhere::product(stages_then_rows, A_TURNED ? lying(a, k, m, a_pitch) : lying(a, m, k, a_pitch),
                    B_TURNED ? lying(b, n, k, b_pitch) : lying(b, k, n, b_pitch), partial, c0, c, m, n, k, c_pitch,
                    alpha, beta);
}

#else
#include "parts.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_parts(const __grid_constant__ ptx::TensorMap a, const __grid_constant__ ptx::TensorMap b, float* partial,
               int m, int n, int k, int batch) {
  extern __shared__ __align__(1024) char stages[];
  parts::product(stages, parts::TensorLoads{a, b}, partial, m, n, k, batch);
}
#endif
