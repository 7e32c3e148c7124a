// Results for NaN, zeros and numbers that are out of range; each kernel writes those of one group of functions. The
// numbers are arguments, so that no compiler computes with them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define NEXT out[i++] =

extern "C" __global__ void comparisons(unsigned* out, float nan) {
  int i = 0;
  const __half h = __float2half(nan), one = __float2half(1.0f);
  const __half2 pair = __half2half2(h), ones = __half2half2(one);
  const __nv_bfloat16 b = __float2bfloat16(nan);
  NEXT __hne(h, one);
  NEXT h != one;
  NEXT __hbne2(pair, ones);
  NEXT __half_as_ushort(__hne2(pair, ones).x);
  NEXT __hne(b, __float2bfloat16(1.0f));
  NEXT b != __float2bfloat16(1.0f);
}

extern "C" __global__ void halves(unsigned* out, float nan, float infinity) {
  int i = 0;
  const __half h = __float2half(nan), one = __float2half(1.0f), minus = __float2half(-1.0f);
  const __half endless = __float2half(infinity);
  const __half2 pair = __floats2half2_rn(nan, 1.0f);
  NEXT __half_as_ushort(h);
  NEXT __half_as_ushort(__float2half(-nan));
  NEXT __half_as_ushort(h * one);
  NEXT __half_as_ushort(endless - endless);
  NEXT __half_as_ushort(__hfma(endless, __float2half(0.0f), one));
  NEXT __half_as_ushort(pair.x);
  NEXT __half_as_ushort(pair.y);
  NEXT __half_as_ushort(__hmul2(pair, pair).x);
  NEXT __half_as_ushort(__hfma_relu(h, one, one));
  NEXT __half_as_ushort(__hfma_relu(one, minus, __float2half(0.0f)));
  NEXT __half_as_ushort(__hfma_relu(one, one, one));
  const __half2 cut = __hfma2_relu(pair, __half2half2(minus), __half2half2(__float2half(0.0f)));
  NEXT __half_as_ushort(cut.x);
  NEXT __half_as_ushort(cut.y);
}

extern "C" __global__ void nan_of_doubles(unsigned* out, unsigned long long bits) {
  int i = 0;
  const double nan = __longlong_as_double(bits);
  NEXT __half_as_ushort(__double2half(nan));
  NEXT __half_as_ushort(__half(nan));
  NEXT __bfloat16_as_ushort(__double2bfloat16(nan));
}

extern "C" __global__ void conversions(unsigned long long* out, float nan, double wide_nan) {
  int i = 0;
  NEXT(long long) __float2int_rn(nan);
  NEXT __float2uint_rn(nan);
  NEXT __float2ll_rn(nan);
  NEXT __float2ull_rn(nan);
  NEXT(long long) __double2int_rn(wide_nan);
  NEXT __double2ll_rn(wide_nan);
}

// Each result once for every order of the arguments: `zero` is +0
extern "C" __global__ void zeros(unsigned* out, float zero, float minus, float nan) {
  int i = 0;
  NEXT __float_as_uint(max(minus, zero));
  NEXT __float_as_uint(max(zero, minus));
  NEXT __float_as_uint(fmaxf(minus, zero));
  NEXT __float_as_uint(fmaxf(zero, minus));
  NEXT __float_as_uint(fmaxf(minus, 0.0f));
  NEXT __float_as_uint(fmaxf(minus, minus));
  NEXT __float_as_uint(fmaxf(0.0f, minus));
  NEXT __float_as_uint(fmax(minus, zero));
  NEXT __float_as_uint(fmaxf(nan, zero));
  NEXT __float_as_uint(fmaxf(zero, nan));
  NEXT __float_as_uint(fmaxf(nan, 0.0f));
  NEXT __float_as_uint(min(minus, zero));
  NEXT __float_as_uint(min(zero, minus));
  NEXT __float_as_uint(fminf(minus, zero));
  NEXT __float_as_uint(fminf(zero, minus));
  NEXT __float_as_uint(fminf(minus, 0.0f));
  NEXT __float_as_uint(fminf(nan, minus));
  NEXT __half_as_ushort(__hmax(__float2half(minus), __float2half(zero)));
  NEXT __half_as_ushort(__hmin(__float2half(zero), __float2half(minus)));
}

#define EACH_WAY(f, ...) f##_rd(__VA_ARGS__), f##_ru(__VA_ARGS__), f##_rz(__VA_ARGS__)

// Of each neighbouring pair of numbers: a sum, a product and the like, rounded down, up and toward zero
extern "C" __global__ void directed(const float* x, float* out, int n) {
  const int i = threadIdx.x;
  const float a = x[i], b = x[(i + 1) % n];
  const float results[] = {
      EACH_WAY(__fadd, a, b),     EACH_WAY(__fmul, a, b),    EACH_WAY(__fdiv, a, b),
      EACH_WAY(__fmaf, a, b, -a), EACH_WAY(__float2half, a), EACH_WAY(__float2bfloat16, a),
  };
  for (int k = 0; k < 18; k++) out[18 * i + k] = results[k];
}

// Products halfway between two bfloats, and a little more or less. The name is also one of the emulator's.
extern "C" __global__ void fused(float* out, float tiny, long n) {
  int i = 0;
  const __nv_bfloat16 three(3 * n), seven(7 * n), little(tiny), less = -little;
  const __nv_bfloat162 more = __hfma2({three, seven}, {__nv_bfloat16(87.0f), __nv_bfloat16(37.0f)}, {little, less});
  NEXT __low2float(more);
  NEXT __high2float(more);
  NEXT float(__hfma(three, __nv_bfloat16(87.0f), CUDART_ZERO_BF16));
  NEXT float(__hfma_sat(three, seven, less));
  NEXT float(hexp(CUDART_ZERO_BF16));
  NEXT float(__hmax(-CUDART_INF_FP16, __half(size_t(n))));
}

extern "C" __global__ void quotients(float* out, float large) {
  int i = 0;
  NEXT __fdividef(1.0f, large / 4);
  NEXT __fdividef(1.0f, large);
  NEXT __fdividef(large, large);
  NEXT __fdividef(6.0f, 3.0f);
  NEXT sinpif(large);
  NEXT cospif(large / large - 0.5f);
  NEXT norm3df(large, 0.0f, 0.0f);
  NEXT normcdff(large * 0 - 12.0f) * 0x1p109f;
}

extern "C" __global__ void words(unsigned* out, unsigned byte) {
  int i = 0;
  NEXT unsigned(__dp4a(byte, 1u, 5u));
  NEXT unsigned(__dp4a(int(byte), 1, 5));
  NEXT unsigned(printf("%d %s %%\n", int(byte), "words"));
  NEXT unsigned(printf("none\n"));
}

// Even lanes have the first value, odd lanes the second
extern "C" __global__ void matches(unsigned* out, float first, float second) {
  out[threadIdx.x] = __match_any_sync(0xffffffff, threadIdx.x % 2 ? second : first);
}
