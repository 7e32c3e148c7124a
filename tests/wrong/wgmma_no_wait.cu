// Nobody waits for the products: the next tile overwrites one that is being read.
// plan: wgmma
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ __align__(16) half x_tile[2][24][8];  // k / 8, column, k % 8
  const int P = H - R + 1, Q = W - S + 1, K = C * R * S, cols = N * P * Q;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int m0 = blockIdx.y * 64 + threadIdx.x / 32 * 16 + g, j0 = blockIdx.x * 24;
  const unsigned long long matrix = ptx::matrix_descriptor(x_tile, sizeof x_tile[0], sizeof x_tile[0][0] * 8);
  float acc[3][4] = {};
  for (int k0 = 0; k0 < K; k0 += 16) {
    for (int i = threadIdx.x; i < 384; i += 128) {
      const int k = k0 + i / 24, j = j0 + i % 24, c = k / (R * S), r = k / S % R, s = k % S;
      const int n = j / (P * Q), p = j / Q % P, q = j % Q;
      const float value = j < cols && k < K ? x[((n * C + c) * H + p + r) * W + q + s] : 0.0f;
      x_tile[i / 192][i % 24][i / 24 % 8] = value;  // expect: async
    }
    ptx::fence_proxy_async();
    __syncthreads();
    unsigned a[4];
    for (int i = 0; i < 4; i++) {
      const int m = m0 + i % 2 * 8, k = k0 + i / 2 * 8 + 2 * t;
      const float* weight = &w[m * K + k];
      a[i] = ptx::pack_halves(m < M && k < K ? weight[0] : 0.0f, m < M && k + 1 < K ? weight[1] : 0.0f);
    }
    ptx::wgmma_fence();
    ptx::wgmma_m64k16<24, true>(acc, a, matrix);
    ptx::wgmma_commit();
    __syncthreads();
  }
  for (int i = 0; i < 12; i++) {
    const int m = m0 + i % 4 / 2 * 8, j = j0 + i / 4 * 8 + 2 * t + i % 2;
    if (m < M && j < cols) y[((j / (P * Q) * M + m) * P + j / Q % P) * Q + j % Q] = acc[i / 4][i % 4];
  }
}
