// A pitch of 20 halves: every other row starts in the middle of 16 bytes.
// plan: wmma
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ __align__(16) half w_tile[16][20], x_tile[16][20];
  const int P = H - R + 1, Q = W - S + 1, K = C * R * S, cols = N * P * Q;
  const int lane = threadIdx.x, m0 = blockIdx.y * 16, j0 = blockIdx.x * 16;
  float acc[2][4] = {};
  for (int k0 = 0; k0 < K; k0 += 16) {
    for (int i = lane; i < 256; i += 32) {
      const int a = i / 16, b = i % 16, k = k0 + a, j = j0 + b;
      const int n = j / (P * Q), p = j / Q % P, q = j % Q, c = k / (R * S), r = k / S % R, s = k % S;
      w_tile[a][b] = __float2half(m0 + a < M && k0 + b < K ? w[(m0 + a) * K + k0 + b] : 0.0f);
      x_tile[a][b] = __float2half(j < cols && k < K ? x[((n * C + c) * H + p + r) * W + q + s] : 0.0f);
    }
    __syncwarp();
    unsigned a[4], b[2];
    ptx::ldmatrix(a, &w_tile[lane % 16][lane / 16 * 8]);  // expect: misaligned
    for (int side = 0; side < 2; side++) {
      ptx::ldmatrix_trans(b, &x_tile[lane % 16][side * 8]);
      ptx::mma_m16n8k16(acc[side], a, b);
    }
    __syncwarp();
  }
  for (int i = 0; i < 8; i++) {
    const int m = m0 + lane / 4 + i % 4 / 2 * 8, j = j0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
    if (m < M && j < cols) y[((j / (P * Q) * M + m) * P + j / Q % P) * Q + j % Q] = acc[i / 4][i % 4];
  }
}
