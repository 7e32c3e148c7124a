// Each block stores half of the filter in both, as it should be; who has all of it may return.
// plan: cluster
// expect: nothing
#include <mini_dnn/ptx.cuh>

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ __align__(16) float filter[64];
  __shared__ ptx::mbarrier landed;
  const int P = H - R + 1, Q = W - S + 1, pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y, n = blockIdx.z, p = pixel / Q, q = pixel % Q;
  const int K = C * R * S, parts = (K + 3) / 4;
  const unsigned rank = ptx::cluster_rank();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&landed, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&landed, 16 * parts);
  }
  ptx::cluster_sync();
  for (int i = threadIdx.x; i < parts; i += blockDim.x) {  // odd parts come from block 1
    float part[4] = {};
    for (int j = 0; j < 4 && 4 * i + j < K; j++) part[j] = w[m * K + 4 * i + j];
    const float4 value = make_float4(part[0], part[1], part[2], part[3]);
    for (int to = 0; to < 2 && i % 2 == rank; to++) {
      ptx::mbarrier* const counts = ptx::cluster_shared(&landed, to);
      ptx::store_async(ptx::cluster_shared(filter + 4 * i, to), value, counts);
    }
  }
  ptx::mbarrier_wait(&landed, 0);
  float acc = 0.0f;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S && p < P; s++)
        acc += x[((n * C + c) * H + p + r) * W + q + s] * filter[(c * R + r) * S + s];
  if (p < P) y[((n * M + m) * P + p) * Q + q] = acc;
}
