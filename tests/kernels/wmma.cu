// One product of tiles per warp: d = 2 * (a * b + c). SHAPE_M, SHAPE_N, SHAPE_K, LAYOUT_A, LAYOUT_B, LAYOUT_D and SUM
// (float or half) are macros; PITCH_* are the leading dimensions.
#include <mma.h>

using namespace nvcuda;

extern "C" __global__ void product(const half* a, const half* b, const SUM* c, SUM* d, int shared) {
  extern __shared__ __align__(32) half tiles[];
  half* const a_tile = tiles;
  half* const b_tile = tiles + 40 * 40;
  SUM* const c_tile = reinterpret_cast<SUM*>(tiles + 2 * 40 * 40);
  if (shared) {
    for (int i = threadIdx.x; i < 40 * 40; i += blockDim.x) a_tile[i] = a[i], b_tile[i] = b[i], c_tile[i] = c[i];
    __syncthreads();
    a = a_tile, b = b_tile, c = c_tile;
  }
  wmma::fragment<wmma::matrix_a, SHAPE_M, SHAPE_N, SHAPE_K, half, wmma::LAYOUT_A> fa;
  wmma::fragment<wmma::matrix_b, SHAPE_M, SHAPE_N, SHAPE_K, half, wmma::LAYOUT_B> fb;
  wmma::fragment<wmma::accumulator, SHAPE_M, SHAPE_N, SHAPE_K, SUM> sum, zero;
  wmma::load_matrix_sync(fa, a, PITCH_A);
  wmma::load_matrix_sync(fb, b, PITCH_B);
  wmma::load_matrix_sync(sum, c, PITCH_D, wmma::LAYOUT_D);
  wmma::fill_fragment(zero, 0.f);
  wmma::mma_sync(sum, fa, fb, sum);
  for (int i = 0; i < sum.num_elements; i++) sum.x[i] = sum.x[i] + sum.x[i] + zero.x[i];
  wmma::store_matrix_sync(d, sum, PITCH_D, wmma::LAYOUT_D);
}

// c is not used when tiles are multiplied in a loop: the accumulator starts at zero.
extern "C" __global__ void many_warps(const half* a, const half* b, float* d, int n) {
  const int warp = threadIdx.x / 32;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int k = 0; k < n; k += 16) {
    wmma::load_matrix_sync(fa, a + warp * 16 * n + k, n);
    wmma::load_matrix_sync(fb, b + k * 16, 16);
    wmma::mma_sync(sum, fa, fb, sum);
  }
  wmma::store_matrix_sync(d + warp * 16 * 16, sum, 16, wmma::mem_row_major);
}

extern "C" __global__ void tf32(const float* a, const float* b, float* d, int convert) {
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  wmma::load_matrix_sync(fa, a, 8);
  wmma::load_matrix_sync(fb, b, 8);
  if (convert) {
    for (int i = 0; i < fa.num_elements; i++) fa.x[i] = wmma::__float_to_tf32(fa.x[i]);
    for (int i = 0; i < fb.num_elements; i++) fb.x[i] = wmma::__float_to_tf32(fb.x[i]);
  }
  wmma::mma_sync(sum, fa, fb, sum);
  wmma::store_matrix_sync(d, sum, 16, wmma::mem_row_major);
}
