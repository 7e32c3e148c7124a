// Each lane passes a row of its own to the store; WMMA takes one pointer for all lanes, the corner of the tile.
// plan: wmma
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ __align__(32) half w_tile[16][16], x_tile[16][16];
  __shared__ __align__(32) float staged[16][16];
  const int P = H - R + 1, Q = W - S + 1, K = C * R * S, cols = N * P * Q;
  const int lane = threadIdx.x, m0 = blockIdx.y * 16, j0 = blockIdx.x * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
  wmma::fill_fragment(acc, 0.0f);
  for (int k0 = 0; k0 < K; k0 += 16) {
    for (int i = lane; i < 256; i += 32) {
      const int a = i / 16, b = i % 16, k = k0 + a, j = j0 + b;
      const int n = j / (P * Q), p = j / Q % P, q = j % Q, c = k / (R * S), r = k / S % R, s = k % S;
      w_tile[a][b] = __float2half(m0 + a < M && k0 + b < K ? w[(m0 + a) * K + k0 + b] : 0.0f);
      x_tile[a][b] = __float2half(j < cols && k < K ? x[((n * C + c) * H + p + r) * W + q + s] : 0.0f);
    }
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
    wmma::load_matrix_sync(a, &w_tile[0][0], 16);
    wmma::load_matrix_sync(b, &x_tile[0][0], 16);
    wmma::mma_sync(acc, a, b, acc);
    __syncwarp();
  }
  wmma::store_matrix_sync(&staged[lane % 16][0], acc, 16, wmma::mem_row_major);  // expect: warp-mask
  __syncwarp();
  for (int i = lane; i < 256; i += 32) {
    const int m = m0 + i / 16, j = j0 + i % 16;
    if (m < M && j < cols) y[((j / (P * Q) * M + m) * P + j / Q % P) * Q + j % Q] = staged[i / 16][i % 16];
  }
}
