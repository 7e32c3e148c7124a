// half and half2: one operation per kernel, over arrays.
#include <cuda_fp16.h>

extern "C" __global__ void operators(const half* a, const half* b, const half* c, half* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  half* mine = out + 8 * i;
  mine[0] = a[i] + b[i];
  mine[1] = __hsub(a[i], b[i]);
  mine[2] = a[i] * b[i];
  mine[3] = a[i] / b[i];
  mine[4] = __hfma(a[i], b[i], c[i]);
  mine[5] = -a[i];
  mine[6] = hsqrt(__habs(a[i]));
  mine[7] = __hmax(a[i], b[i]);
}

extern "C" __global__ void pairs(const half2* a, const half2* b, const half2* c, half2* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  half2* mine = out + 5 * i;
  mine[0] = __hadd2(a[i], b[i]);
  mine[1] = a[i] * b[i];
  mine[2] = __hfma2(a[i], b[i], c[i]);
  const float2 f = __half22float2(a[i]);
  mine[3] = __floats2half2_rn(f.y, f.x);
  mine[4] = __halves2half2(__low2half(b[i]), __high2half(c[i]));
}

extern "C" __global__ void from_float(const float* x, half* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __float2half(x[i]);
}
extern "C" __global__ void from_double(const double* x, half* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __double2half(x[i]);
}
extern "C" __global__ void to_float(const half* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __half2float(x[i]);
}
extern "C" __global__ void compare(const half* a, const half* b, int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = (a[i] < b[i]) + 2 * (a[i] == b[i]) + 4 * __hge(a[i], b[i]) + 8 * __hisnan(a[i]);
}
