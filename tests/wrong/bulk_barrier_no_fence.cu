// The mbarrier is initialised and no fence follows: the copy engine may not see it.
// plan: direct
#include <mini_dnn/ptx.cuh>

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ __align__(128) float plane[1024];
  __shared__ ptx::mbarrier full;
  const int P = H - R + 1, Q = W - S + 1, pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y, n = blockIdx.z, p = pixel / Q, q = pixel % Q;
  if (threadIdx.x == 0) ptx::mbarrier_init(&full, 1);
  __syncthreads();
  float acc = 0.0f;
  for (int c = 0; c < C; c++) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive_expect_tx(&full, 4 * H * W);
      ptx::bulk_load(plane, x + (n * C + c) * H * W, 4 * H * W, &full);  // expect: async
    }
    ptx::mbarrier_wait(&full, c % 2);
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++)
        if (p < P) acc += plane[(p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
    __syncthreads();
  }
  if (p < P) y[((n * M + m) * P + p) * Q + q] = acc;
}
