// Results by tensor copies, as they should be.
// plan: tensor_store
// expect: nothing
#include <mini_dnn/ptx.cuh>

extern "C" __global__ void conv(const __grid_constant__ ptx::TensorMap rows, const float* x, const float* w, int N,
                                int C, int H, int W, int M, int R, int S) {
  __shared__ __align__(128) float row[64];
  const int P = H - R + 1, Q = W - S + 1, pixel = blockIdx.x * 64 + threadIdx.x;
  const int m = blockIdx.y, n = blockIdx.z, p = pixel / Q, q = pixel % Q;
  float acc = 0.0f;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++)
        if (p < P) acc += x[((n * C + c) * H + p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
  row[threadIdx.x] = acc;
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::tensor_store(rows, blockIdx.x * 64, n * M + m, row);
    ptx::bulk_commit();
    ptx::bulk_wait_read<0>();
  }
}

extern "C" __global__ void gather(const float* part, float* y, int pixels, int pitch) {
  for (int i = threadIdx.x; i < pixels; i += blockDim.x) y[blockIdx.x * pixels + i] = part[blockIdx.x * pitch + i];
}
