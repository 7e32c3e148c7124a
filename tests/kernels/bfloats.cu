// __nv_bfloat16 and __nv_bfloat162: one operation per kernel, over arrays.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void operators(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __nv_bfloat16* mine = out + 8 * i;
  mine[0] = a[i] + b[i];
  mine[1] = __hsub(a[i], b[i]);
  mine[2] = a[i] * b[i];
  mine[3] = a[i] / b[i];
  mine[4] = -a[i];
  mine[5] = __habs(a[i]);
  mine[6] = __hmax(a[i], b[i]);
  mine[7] = __ushort_as_bfloat16(__bfloat16_as_ushort(b[i]));
}

extern "C" __global__ void pairs(const __nv_bfloat162* a, const __nv_bfloat162* b, __nv_bfloat162* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __nv_bfloat162* mine = out + 3 * i;
  mine[0] = __hadd2(a[i], b[i]);
  const float2 f = __bfloat1622float2(a[i]);
  mine[1] = __floats2bfloat162_rn(f.y, f.x);
  mine[2] = __halves2bfloat162(__low2bfloat16(b[i]), __high2bfloat16(a[i]));
}

extern "C" __global__ void compare(const __nv_bfloat16* a, const __nv_bfloat16* b, int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] =
        (a[i] < b[i]) | __heq(a[i], b[i]) << 1 | (a[i] >= b[i]) << 2 | __hisnan(a[i]) << 3 | (__hisinf(a[i]) != 0) << 4;
}

extern "C" __global__ void from_float(const float* x, __nv_bfloat16* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __float2bfloat16(x[i]);
}
extern "C" __global__ void from_double(const double* x, __nv_bfloat16* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __double2bfloat16(x[i]);
}
extern "C" __global__ void to_float(const __nv_bfloat16* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __bfloat162float(x[i]);
}
