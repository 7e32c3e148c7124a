// networks/vit/layer_by_layer: one launch per step of a vision transformer, all results in GPU memory.
//
// Idea      A transformer consists of products, attention, and a few small steps. Products and attention are those of
//           the ladders. This file has the small steps, one kernel each, written like their formulas.
// Layout    images (N,C,H,W) bytes, halves or fp32; patches (N,T-1,C S S) in the order of a convolution's weights;
//           tokens (N,T,D), the class token first; qkv (N,T,3,heads,d). All but the images fp32, C order.
// Mapping   a thread -> an element of the output; a warp -> a token in normalise, an image in softmax.
// Roofline  ViT-B/16, N = 32: 1.1 TFLOP in products, 17 ms at 67 TFLOP/s of fp32. The small steps read and write 0.6 GB
//           per block, 7 GB in total, 1.7 ms at 4.3 TB/s.
// Gain      none: this is the first rung.
// Limits    sizes are arguments, except the type of the images. Fewer than 2^31 blocks.
// Hazards   none: threads share only the sums of a warp, and a launch starts after the previous one has ended.
// Source    A. Dosovitskiy et al., "An Image is Worth 16x16 Words", arXiv:2010.11929.
#include <cuda_fp16.h>

#if IMAGES == 8
typedef unsigned char Pixel;
#elif IMAGES == 16
typedef half Pixel;
#else
typedef float Pixel;
#endif

__device__ __forceinline__ long long thread_index() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }

// The sum of a warp's 32 values.
__device__ __forceinline__ float sum_of_warp(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// images (N,C,side,side) -> patches (N, patches in the order of lines of a page, C S S); count is the number of
// elements of the output, here and below.
extern "C" __global__ void cut(const Pixel* images, float* patches, long long count, int C, int side, int S) {
  const long long i = thread_index();
  if (i >= count) return;
  const int w = i % S, h = i / S % S, c = i / (S * S) % C, across = side / S;
  const long long patch = i / ((long long)C * S * S);
  const int column = patch % across * S + w, row = patch / across % across * S + h;
  const long long n = patch / (across * across);
  const float value = float(images[((n * C + c) * side + row) * side + column]);
  patches[i] = IMAGES == 8 ? value / 255.0f : value;
}

// Puts the class token before the patches' tokens, and adds a position to each.
extern "C" __global__ void place(const float* embedded, const float* bias, const float* class_token,
                                 const float* position, float* tokens, long long count, int T, int D) {
  const long long i = thread_index();
  if (i >= count) return;
  const int e = i % D, t = i / D % T;
  const long long n = i / ((long long)T * D);
  const float token = t == 0 ? class_token[e] : embedded[(n * (T - 1) + t - 1) * D + e] + bias[e];
  tokens[i] = token + position[t * D + e];
}

// Normalises lines of D elements, `pitch` apart: (x - mean) / standard deviation.
extern "C" __global__ void normalise(const float* x, const float* weight, const float* bias, float* y, int lines, int D,
                                     long long pitch) {
  const long long line = thread_index() / 32;
  const int lane = threadIdx.x % 32;
  if (line >= lines) return;
  const float* const from = x + line * pitch;
  float sum = 0.0f, squares = 0.0f;
  for (int e = lane; e < D; e += 32) sum += from[e];
  const float mean = sum_of_warp(sum) / D;
  for (int e = lane; e < D; e += 32) squares += (from[e] - mean) * (from[e] - mean);
  const float inverse = 1.0f / sqrtf(sum_of_warp(squares) / D + 1e-6f);
  for (int e = lane; e < D; e += 32) y[line * D + e] = (from[e] - mean) * inverse * weight[e] + bias[e];
}

extern "C" __global__ void add_bias(float* y, const float* bias, long long count, int D) {
  const long long i = thread_index();
  if (i < count) y[i] += bias[i % D];
}

extern "C" __global__ void gelu(float* y, long long count) {
  const long long i = thread_index();
  if (i >= count) return;
  const float x = y[i];
  y[i] = 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

extern "C" __global__ void add(float* tokens, const float* branch, long long count) {
  const long long i = thread_index();
  if (i < count) tokens[i] += branch[i];
}

// In place. The largest score is subtracted first, so that no exponential overflows.
extern "C" __global__ void softmax(float* y, int N, int classes) {
  const long long n = thread_index() / 32;
  const int lane = threadIdx.x % 32;
  if (n >= N) return;
  float* const scores = y + n * classes;
  float largest = scores[0], sum = 0.0f;
  for (int k = 0; k < classes; k++) largest = fmaxf(largest, scores[k]);
  for (int k = lane; k < classes; k += 32) sum += expf(scores[k] - largest);
  sum = sum_of_warp(sum);
  __syncwarp();  // all lanes have found the largest
  for (int k = lane; k < classes; k += 32) scores[k] = expf(scores[k] - largest) / sum;
}
