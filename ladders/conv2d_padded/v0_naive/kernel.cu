// conv2d_padded/v0_naive: one thread per element of y, directly from the formula.
//
// Idea      All elements of y are independent. A thread iterates over its window, skips the positions outside the
//           image, and adds bias and residual to its sum before anything is written.
// Layout    x, w, residual and y as in the problem, channels first or last; sums and bias in fp32.
// Mapping   a thread -> an element of y, in the order of y in memory.
// Roofline  layer1 of ResNet-18 with 64 images: 14.8 GFLOP, 0.22 ms at 67 TFLOP/s of fp32, and 51 MB. Each product
//           needs two loads from L1 and L2, which take some 2 ms at one load of a warp per clock and SM.
// Gain      none: this is the first rung.
// Limits    fewer than 2^31 blocks.
// Hazards   none: threads share nothing.
// Source    V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", arXiv:1603.07285.
#include <cuda_fp16.h>

#if HALF
typedef half Value;
#else
typedef float Value;
#endif

extern "C" __global__ void convolve(const Value* x, const Value* w, const float* bias, const Value* residual, Value* y,
                                    long long count, int C, int H, int W, int K, int R, int stride, int padding, int P,
                                    int Q) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int k = CHANNELS_LAST ? i % K : i / (P * Q) % K;
  const int q = (CHANNELS_LAST ? i / K : i) % Q, p = (CHANNELS_LAST ? i / K : i) / Q % P;
  const long long image = i / ((long long)K * P * Q) * C * H * W;
  float sum = 0.0f;
  for (int r = 0; r < R; r++)
    for (int s = 0; s < R; s++) {
      const int h = p * stride + r - padding, column = q * stride + s - padding;
      if (h < 0 || h >= H || column < 0 || column >= W) continue;
      for (int c = 0; c < C; c++) {
        const long long from =
            CHANNELS_LAST ? ((long long)h * W + column) * C + c : ((long long)c * H + h) * W + column;
        const long long tap = CHANNELS_LAST ? ((k * R + r) * R + s) * C + c : ((k * C + c) * R + r) * R + s;
        sum += float(x[image + from]) * float(w[tap]);
      }
    }
  sum += bias[k];
  if (RESIDUAL) sum += float(residual[i]);
  y[i] = Value(RELU ? fmaxf(sum, 0.0f) : sum);
}
