// A block may return while the other still reads its half.
// plan: cluster
#include <mini_dnn/ptx.cuh>

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  __shared__ float half[64];
  const int P = H - R + 1, Q = W - S + 1, pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y, n = blockIdx.z, p = pixel / Q, q = pixel % Q;
  const unsigned rank = ptx::cluster_rank();
  for (int k = 2 * threadIdx.x + rank; k < C * R * S; k += 2 * blockDim.x) {
    half[k / 2] = w[m * C * R * S + k];
  }
  ptx::cluster_sync();
  float acc = 0.0f;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S && p < P; s++) {
        const int k = (c * R + r) * S + s;
        const float* const part = ptx::cluster_shared(half, k % 2);
        acc += x[((n * C + c) * H + p + r) * W + q + s] * part[k / 2];  // expect: cluster
      }
  if (p < P) y[((n * M + m) * P + p) * Q + q] = acc;
}
