// gemm/v10_small: gemm/v8_final for products that have few tiles, or a matrix that is read once.
//
// Idea      wgmma has 64 rows or more, so a small product has few tiles, and each multiprocessor that has one loads for
//           long while the others have nothing to do. Tiles of 16 rows use cp.async and mma.sync as in
//           gemm/v5_mma_async, with a k of up to 512 in flight at once (small.cuh). If k is thousands of terms long,
//           PARTS blocks share the k of a tile. They store their sums in memory, and a second kernel adds them: a
//           cluster would start later, and not every number of clusters fits (parts.cuh). In a product of a row and a
//           matrix, a thread loads 16 rows before it adds any (columns.cuh). Every other problem is a call of
//           gemm/v8_final. variant.py chooses by a model of the time.
// Layout    as gemm/v8_final. Small tiles: lines of up to 64 elements, whose parts of 16 bytes are swizzled. Sums of
//           parts are whole tiles of floats.
// Mapping   Small tiles: a block of four warps for each, a warp for 16 of every 64 k. Parts: a block on each
//           multiprocessor; one warpgroup consumes, and a warp produces; then a thread for four columns. Columns: a
//           block for 64 of them, and up to 8 blocks of a cluster for their k.
// Roofline  m = n = k = 256: 0.4 MB, 0.0001 ms; a product of one tile and 8 of k takes 0.0017 ms. 512 x 512 x 8192: 4.3
//           GFLOP, 0.005 ms at 990 TFLOP/s. Each of 128 blocks takes in 786 KB, 0.008 ms at 55 bytes a clock, and 4 MB
//           of sums are written and read.
// Gain      over gemm/v8_final, in us on an H100, expected and measured: 128, 2.44 to 2.1 and 1.95, because each of 64
//           blocks loads 8 KB, and not each of 4 blocks 32 KB; 256, 2.73 to 2.3 and 2.35. 512 x 512 x 8192: 15.8 to 12
//           and 12.6. 1 x 4096 x 4096: 15.5 to 15 and 14.3.
// Limits    16 bits, sm_90a. Its own kernels need lines that start at multiples of 16 bytes.
// Hazards   as gemm/v7_specialised and gemm/v5_mma_async. In addition: sums take the place of the stages of a small
//           tile, so all warps must have read the last stage before. A kernel that is launched early must not access
//           global memory before grid_wait(). Small tiles let the next kernel start only after their loads have
//           started: otherwise blocks of several later kernels, which only wait, take the places of those that work.
// Source    PTX ISA, "cp.async", "mma.sync", "griddepcontrol"; CUTLASS, "Efficient GEMM in CUDA" (split-k).
#include "columns.cuh"

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
    gemm_anywhere(const lines::Bits* a, const lines::Bits* b, const Out* c0, Out* c, int m, int n, int k, int a_pitch,
                  int b_pitch, int c_pitch, int batch, float alpha, float beta) {
  extern __shared__ __align__(1024) char stages_then_sums[];
  auto lying = [=](const lines::Bits* from, int lines, int length, int pitch) {
    return Lines{from, lines, length, pitch, (((long long)batch * lines - 1) * pitch + length) / 8 * 8};
  };
  anywhere::product(stages_then_sums, A_TURNED ? lying(a, k, m, a_pitch) : lying(a, m, k, a_pitch),
                    B_TURNED ? lying(b, n, k, b_pitch) : lying(b, k, n, b_pitch), c0, c, m, n, k, c_pitch, alpha, beta);
}

#elif KIND == NARROW
#include "narrow.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_narrow(const __grid_constant__ ptx::TensorMap a, const __grid_constant__ ptx::TensorMap b, const Out* c0,
                Out* c, int m, int n, int k, int c_pitch, float alpha, float beta) {
  extern __shared__ __align__(1024) char stages_then_sums[];
  narrow::product(stages_then_sums, a, b, c0, c, m, n, k, c_pitch, alpha, beta);
}

#else
#include "parts.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_parts(const __grid_constant__ ptx::TensorMap a, const __grid_constant__ ptx::TensorMap b, float* partial,
               int m, int n, int k, int batch) {
  extern __shared__ __align__(1024) char stages[];
  parts::product(stages, parts::TensorLoads{a, b}, partial, m, n, k, batch);
}

extern "C" __global__ void __launch_bounds__(COPIERS)
    add_parts(const float* partial, const Out* c0, Out* c, int rows, int m, int n, int size, int pitch, int c_pitch,
              float alpha, float beta) {
  ptx::grid_wait();
  parts::add(partial, c0, c, rows, m, n, size, pitch, c_pitch, alpha, beta);
}
#endif
