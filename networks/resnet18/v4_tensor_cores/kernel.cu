// networks/resnet18/v4_tensor_cores: networks/resnet18/v3_shared in halves with channels last, on the tensor cores.
//
// Idea      conv2d_padded/v2 multiplies halves with channels last, so all feature maps have this form. The operations
//           between two convolutions now matter: norm, residual and ReLU are one kernel, which reads and writes a map
//           once.
// Layout    images (N,C,H,W) bytes, halves or fp32; pixels and maps (N,H,W,channels), halves; filters (K,R,R,C),
//           halves, rearranged once, in setup; features, norms and the last layer fp32.
// Mapping   a thread -> WIDE channels of a pixel; in average_pool a thread, and in linear a warp -> an element.
// Roofline  ResNet-18, 64 images: 232 GFLOP, 0.23 ms at 990 TFLOP/s. Between the convolutions: 0.8 GB, 0.18 ms at 4.3
//           TB/s.
// Gain      over networks/resnet18/v3_shared: a factor of 6 in convolutions, like conv2d_padded/v2 over v1, and of 4
//           elsewhere.
// Limits    sizes are arguments, except the type of the images. Fewer than 2^31 blocks. The sums of a convolution must
//           be within 65,504 before their norm.
// Hazards   none: threads share only the sums of a warp, and a launch starts after the previous one has ended.
// Source    K. He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385.
#include <cuda_fp16.h>

#if IMAGES == 8
typedef unsigned char Pixel;
#elif IMAGES == 16
typedef half Pixel;
#else
typedef float Pixel;
#endif

struct alignas(WIDE * sizeof(half)) Wide {  // channels of a thread
  half part[WIDE];
};

__device__ __forceinline__ long long thread_index() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }

extern "C" __global__ void clear(float* x, long long count) {
  const long long i = thread_index();
  if (i < count) x[i] = 0.0f;
}

// Filters (K,C,pixels) -> (K,pixels,C) in halves.
extern "C" __global__ void turn(const float* w, half* turned, long long count, int C, int pixels) {
  const long long i = thread_index();
  if (i >= count) return;
  const int c = i % C, pixel = i / C % pixels;
  turned[i] = half(w[(i / ((long long)C * pixels) * C + c) * pixels + pixel]);
}

// images (N,C,pixels) -> x (N,pixels,C); bytes are normalised by the mean and deviation of their channel.
extern "C" __global__ void convert(const Pixel* images, const float* mean, const float* deviation, half* x,
                                   long long count, int C, int pixels) {
  const long long i = thread_index();
  if (i >= count) return;
  const int c = i % C, pixel = i / C % pixels;
  const float value = float(images[(i / ((long long)C * pixels) * C + c) * pixels + pixel]);
  x[i] = half(IMAGES == 8 ? (value / 255.0f - mean[c]) / deviation[c] : value);
}

// Changes y (pixels,K) in place: norm, then the shortcut if there is one, then ReLU if `relu` is set.
extern "C" __global__ void finish(Wide* y, const float* weight, const float* bias, const float* mean,
                                  const float* variance, const Wide* shortcut, long long count, int K, int add,
                                  int relu) {
  const long long i = thread_index();
  if (i >= count) return;
  const int first = i % (K / WIDE) * WIDE;
  Wide value = y[i], more = {};
  if (add) more = shortcut[i];
#pragma unroll
  for (int j = 0; j < WIDE; j++) {
    const int k = first + j;
    float sum = (float(value.part[j]) - mean[k]) * rsqrtf(variance[k] + 1e-5f) * weight[k] + bias[k];
    if (add) sum += float(more.part[j]);
    value.part[j] = half(relu ? fmaxf(sum, 0.0f) : sum);
  }
  y[i] = value;
}

// Maxima of 3 x 3 windows of x (N,side,side,K), stride 2, padding 1 -> y (N,P,P,K).
extern "C" __global__ void max_pool(const Wide* x, Wide* y, long long count, int K, int side, int P) {
  const long long i = thread_index();
  if (i >= count) return;
  const int pieces = K / WIDE, piece = i % pieces, q = i / pieces % P, p = i / pieces / P % P;
  const Wide* const image = x + i / ((long long)pieces * P * P) * side * side * pieces;
  float largest[WIDE];
  for (int j = 0; j < WIDE; j++) largest[j] = -INFINITY;
  for (int h = max(2 * p - 1, 0); h < min(2 * p + 2, side); h++)
    for (int w = max(2 * q - 1, 0); w < min(2 * q + 2, side); w++) {
      const Wide value = image[(long long)(h * side + w) * pieces + piece];
#pragma unroll
      for (int j = 0; j < WIDE; j++) largest[j] = fmaxf(largest[j], float(value.part[j]));
    }
  Wide found;
  for (int j = 0; j < WIDE; j++) found.part[j] = half(largest[j]);
  y[i] = found;
}

// Means over the pixels of x (N,pixels,K) -> y (N,K) in fp32.
extern "C" __global__ void average_pool(const half* x, float* y, int count, int K, int pixels) {
  const long long i = thread_index();
  if (i >= count) return;
  const half* const of = x + i / K * pixels * K + i % K;
  float sum = 0.0f;
  for (int pixel = 0; pixel < pixels; pixel++) sum += float(of[(long long)pixel * K]);
  y[i] = sum / pixels;
}

// y (N,outputs) = x (N,inputs) weight^T + bias, weight (outputs,inputs)
extern "C" __global__ void linear(const float* x, const float* weight, const float* bias, float* y, int count,
                                  int inputs, int outputs) {
  const long long i = thread_index() / 32;
  if (i >= count) return;
  const int output = i % outputs;
  const float *const row = x + i / outputs * inputs, *const of = weight + (long long)output * inputs;
  float sum = 0.0f;
  for (int k = threadIdx.x % 32; k < inputs; k += 32) sum += row[k] * of[k];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) y[i] = sum + bias[output];
}
