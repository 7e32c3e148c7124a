// The box is read, and only then waited for.
// plan: tensor
#include <mini_dnn/ptx.cuh>

extern "C" __global__ void conv(const __grid_constant__ ptx::TensorMap planes, const float* w, float* y, int N, int C,
                                int H, int W, int M, int R, int S) {
  __shared__ __align__(128) float plane[1024];
  __shared__ ptx::mbarrier full;
  const int P = H - R + 1, Q = W - S + 1, pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y, n = blockIdx.z, p = pixel / Q, q = pixel % Q;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_proxy_async();
  }
  __syncthreads();
  float acc = 0.0f;
  for (int c = 0; c < C; c++) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive_expect_tx(&full, 4 * H * W);
      ptx::tensor_load(plane, planes, 0, n * C + c, &full);
    }
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++)
        if (p < P) acc += plane[(p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];  // expect: async
    ptx::mbarrier_wait(&full, c % 2);
    __syncthreads();
  }
  if (p < P) y[((n * M + m) * P + p) * Q + q] = acc;
}
