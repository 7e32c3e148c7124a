// linear/v0_naive: one thread per element of y, directly from the formula.
//
// Idea      The operations around a linear layer are applied while its sums are in a register: the norm before it, and
//           the bias, GELU and the residual after it. No intermediate result is written to memory.
// Layout    x (m,k), w (n,k), residual and y as in the problem, halves; sums in fp32; moments (m, groups, 2), fp32.
// Mapping   a thread -> an element of y; in moments, a thread -> 64 elements of a line.
// Roofline  32 images of 197 tokens, 768 -> 3072: 30 GFLOP, 0.44 ms at 67 TFLOP/s of fp32. Two loads of two bytes per
//           product: 60 GB from L1 and L2.
// Gain      none: this is the first rung.
// Limits    fewer than 2^31 blocks.
// Hazards   none: threads share nothing.
// Source    J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization", arXiv:1607.06450; D. Hendrycks, K. Gimpel,
//           "Gaussian Error Linear Units", arXiv:1606.08415, for the tanh form.
#include <cuda_fp16.h>

#if OUT_HALF
typedef half Out;
#else
typedef float Out;
#endif

__device__ __forceinline__ int size_of_group(int group, int length) { return min(64, length - 64 * group); }

extern "C" __global__ void linear(const half* x, const half* w, const float* bias, const float* x_moments,
                                  const half* residual, Out* y, int m, int n, int k, long long x_pitch,
                                  long long r_pitch, int r_lines) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (long long)m * n) return;
  const int line = i / n, column = i % n;
  const half* const from = x + line * x_pitch;
  float sum = 0.0f;
  for (int e = 0; e < k; e++) sum += __half2float(from[e]) * __half2float(w[(long long)column * k + e]);
  if (NORM) {
    const int groups = (k + 63) / 64;
    const float* const of_line = x_moments + (long long)line * groups * 2;
    float mean = 0.0f, squares = 0.0f;
    for (int g = 0; g < groups; g++) mean += of_line[2 * g] * size_of_group(g, k);
    mean /= k;
    for (int g = 0; g < groups; g++)
      squares += of_line[2 * g + 1] + size_of_group(g, k) * (of_line[2 * g] - mean) * (of_line[2 * g] - mean);
    sum /= sqrtf(squares / k + 1e-6f);
  }
  sum += bias[column];
  if (GELU) sum = 0.5f * sum * (1.0f + tanhf(0.7978845608f * (sum + 0.044715f * sum * sum * sum)));
  if (r_lines) sum += __half2float(residual[line % r_lines * r_pitch + column]);
  y[i] = Out(sum);
}

extern "C" __global__ void find_moments(const Out* y, float* y_moments, int m, int n) {
  const int groups = (n + 63) / 64;
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (long long)m * groups) return;
  const int group = i % groups, count = size_of_group(group, n);
  const Out* const part = y + i / groups * n + 64 * group;
  float mean = 0.0f, squares = 0.0f;
  for (int e = 0; e < count; e++) mean += float(part[e]);
  mean /= count;
  for (int e = 0; e < count; e++) squares += (float(part[e]) - mean) * (float(part[e]) - mean);
  y_moments[2 * i] = mean;
  y_moments[2 * i + 1] = squares;
}
