// The mask names both blocks, and only the first one waits for the filter.
// plan: cluster
#include <mini_dnn/ptx.cuh>

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ __align__(128) float plane[1024];
  __shared__ ptx::mbarrier full;
  const int P = H - R + 1, Q = W - S + 1, pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y, n = blockIdx.z, p = pixel / Q, q = pixel % Q;
  const unsigned rank = ptx::cluster_rank();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_sync();
  float acc = 0.0f;
  for (int c = 0; c < C; c++) {
    const float* from = x + (n * C + c) * H * W;
    if (rank == 0) {  // the other one reads global memory
      if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_tx(&full, 4 * H * W);
        ptx::bulk_load_multicast(plane, from, 4 * H * W, &full, c == C - 1 ? 3 : 1);  // expect: async
      }
      ptx::mbarrier_wait(&full, c % 2);
      from = plane;
    }
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++)
        if (p < P) acc += from[(p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
    __syncthreads();
  }
  if (p < P) y[((n * M + m) * P + p) * Q + q] = acc;
  ptx::cluster_sync();
}
