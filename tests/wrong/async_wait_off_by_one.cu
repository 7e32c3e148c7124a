// One group may be under way, the next tile's; but the last tile has no next one.
// plan: gemm
#include <mini_dnn/ptx.cuh>

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ float w_tile[2][TILE][TILE], x_tile[2][TILE][TILE];
  const int P = H - R + 1, Q = W - S + 1, K = C * R * S, cols = N * P * Q;
  const int tx = threadIdx.x, ty = threadIdx.y, m = blockIdx.y * TILE + ty, j = blockIdx.x * TILE + tx;
  const int n = j / (P * Q), p = j / Q % P, q = j % Q;
  float acc = 0.0f;
  auto load = [&](int k0, int buffer) {
    const int k = k0 + ty, c = k / (R * S), r = k / S % R, s = k % S;
    const bool in_w = m < M && k0 + tx < K, in_x = j < cols && k < K;
    ptx::cp_async<4>(&w_tile[buffer][ty][tx], in_w ? &w[m * K + k0 + tx] : w, in_w ? 4 : 0);
    ptx::cp_async<4>(&x_tile[buffer][ty][tx], in_x ? &x[((n * C + c) * H + p + r) * W + q + s] : x, in_x ? 4 : 0);
    ptx::cp_async_commit();
  };
  load(0, 0);
  for (int k0 = 0, buffer = 0; k0 < K; k0 += TILE, buffer ^= 1) {
    if (k0 + TILE < K) load(k0 + TILE, buffer ^ 1);
    ptx::cp_async_wait<1>();
    __syncthreads();
    for (int i = 0; i < TILE; i++) acc += w_tile[buffer][ty][i] * x_tile[buffer][i][tx];  // expect: async
    __syncthreads();
  }
  if (m < M && j < cols) y[((n * M + m) * P + p) * Q + q] = acc;
}
