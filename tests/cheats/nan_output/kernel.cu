// Returns NaN, which passes every test of the form error > bound.
// expect: are NaN
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  y[(n * M + m) * P * Q + pixel] = __int_as_float(0x7fffffff);
}
