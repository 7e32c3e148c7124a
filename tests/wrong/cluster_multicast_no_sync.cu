// A multicast counts at an mbarrier of the other block that may not be initialised yet.
// plan: cluster
#include <mini_dnn/ptx.cuh>

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ __align__(128) float plane[1024];
  __shared__ ptx::mbarrier full, empty;
  const int P = H - R + 1, Q = W - S + 1, pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y, n = blockIdx.z, p = pixel / Q, q = pixel % Q;
  const int rank = ptx::cluster_rank();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::mbarrier_init(&empty, 2);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  float acc = 0.0f;
  for (int c = 0; c < C; c++) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive_expect_tx(&full, 4 * H * W);
      if (c % 2 == rank) {  // the blocks take turns in loading a plane for both
        if (c > 0) ptx::mbarrier_wait(&empty, (c - 1) / 2 % 2);
        ptx::bulk_load_multicast(plane, x + (n * C + c) * H * W, 4 * H * W, &full, 3);  // expect: cluster
      }
    }
    ptx::mbarrier_wait(&full, c % 2);
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++)
        if (p < P) acc += plane[(p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
    __syncthreads();  // all have read
    if (threadIdx.x == 0) ptx::mbarrier_arrive_cluster(&empty, (c + 1) % 2);
  }
  if (p < P) y[((n * M + m) * P + p) * Q + q] = acc;
  ptx::cluster_sync();
}
