// networks/lenet/fused_pool: convolution, ReLU and max-pool in one kernel, twice; then the linear layers.
//
// Idea      A pooled value needs SIDE x SIDE results of the convolution, which nothing else needs: one thread computes
//           all of them, keeps them in registers and writes their maximum. The two large arrays, 1.0 and 0.7 GB at N =
//           10,000, are never written.
// Layout    images (N,1,86,86) bytes or fp32; pool1 (N,4,40,40), pool2 (N,16,9,9), weights as in models/lenet.py, fp32,
//           C order. The filters of both layers are in constant memory.
// Mapping   a thread -> a pooled pixel of TILE_M channels; blockIdx.y -> the group of TILE_M channels, so that a warp
//           reads one weight at a time; blockIdx.z -> image.
// Roofline  bytes: images, pool1 and pool2 twice, 0.9 GB at N = 10,000: 0.2 ms at 4.3 TB/s. 97.6 GFLOP in fp32: 1.5 ms
//           at 67 TFLOP/s. A loaded row is used for TILE_M channels, SIDE rows and S columns: at least 12 FMAs per
//           load.
// Gain      over networks/lenet/layer_by_layer: a factor of 10 and more in the convolutions, because an FMA needs a
//           twelfth of a load instead of two.
// Limits    sizes are compile-time constants, as in models/lenet.py; N is at most 65,535, because images are blocks
//           along z.
// Hazards   windows at the lower and right edges are truncated: rows and columns beyond the image are not read, and
//           their results are ignored.
// Source    CUDA C++ Programming Guide, "Constant Memory"; Boureau et al., "A theoretical analysis of feature pooling
//           in visual recognition", 2010, for what pooling keeps.
constexpr int FILTER = 7;
__constant__ float w1[4 * 1 * FILTER * FILTER], w2[16 * 4 * FILTER * FILTER];

extern "C" __global__ void normalise(const unsigned char* bytes, float* x, long long count) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = bytes[i] / 255.0f;
}

// The pooled pixel (p, q) of TILE_M channels, from an image x (C,H,W) and their filters w (TILE_M,C,FILTER,FILTER).
template <int C, int H, int W, int SIDE, int TILE_M>
__device__ void conv_relu_pool(const float* x, const float* w, int p, int q, float (&largest)[TILE_M]) {
  constexpr int P = H - FILTER + 1, Q = W - FILTER + 1, WINDOW = SIDE + FILTER - 1;
  float acc[TILE_M][SIDE][SIDE] = {};
  for (int c = 0; c < C; c++) {
#pragma unroll
    for (int h = 0; h < WINDOW; h++) {
      float row[WINDOW];
#pragma unroll
      for (int i = 0; i < WINDOW; i++) {
        const bool inside = p * SIDE + h < H && q * SIDE + i < W;
        row[i] = inside ? x[(c * H + p * SIDE + h) * W + q * SIDE + i] : 0.0f;
      }
#pragma unroll
      for (int m = 0; m < TILE_M; m++)
#pragma unroll
        for (int r = 0; r < FILTER; r++)
#pragma unroll
          for (int s = 0; s < FILTER; s++) {
            if (h - r < 0 || h - r >= SIDE) continue;
            const float weight = w[((m * C + c) * FILTER + r) * FILTER + s];
#pragma unroll
            for (int j = 0; j < SIDE; j++) acc[m][h - r][j] += row[j + s] * weight;
          }
    }
  }
#pragma unroll
  for (int m = 0; m < TILE_M; m++) {
    largest[m] = 0.0f;  // ReLU of the maximum is the maximum of ReLUs
#pragma unroll
    for (int i = 0; i < SIDE; i++)
#pragma unroll
      for (int j = 0; j < SIDE; j++)
        if (p * SIDE + i < P && q * SIDE + j < Q) largest[m] = fmaxf(largest[m], acc[m][i][j]);
  }
}

template <int C, int H, int W, int M, int SIDE, int TILE_M>
__device__ void layer(const float* x, const float* w, float* y) {
  constexpr int P = (H - FILTER + SIDE) / SIDE, Q = (W - FILTER + SIDE) / SIDE;  // pooled, rounded up
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m0 = blockIdx.y * TILE_M;
  const long long n = blockIdx.z;
  if (pixel >= P * Q) return;
  float largest[TILE_M];
  conv_relu_pool<C, H, W, SIDE, TILE_M>(x + n * C * H * W, w + m0 * C * FILTER * FILTER, pixel / Q, pixel % Q, largest);
#pragma unroll
  for (int m = 0; m < TILE_M; m++) y[(n * M + m0 + m) * P * Q + pixel] = largest[m];
}

extern "C" __global__ void layer1(const float* x, float* pool1) { layer<1, 86, 86, 4, 2, 4>(x, w1, pool1); }
extern "C" __global__ void layer2(const float* pool1, float* pool2) { layer<4, 40, 40, 16, 4, 2>(pool1, w2, pool2); }

// y (N,outputs) = x (N,inputs) weight^T + bias; negative values become 0 if `relu`
extern "C" __global__ void linear(const float* x, const float* weight, const float* bias, float* y, int N, int inputs,
                                  int outputs, int relu) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, output = i % outputs;
  if (i >= N * outputs) return;
  const float* const row = x + (long long)(i / outputs) * inputs;
  float acc = bias[output];
  for (int k = 0; k < inputs; k++) acc += row[k] * weight[output * inputs + k];
  y[i] = relu ? fmaxf(acc, 0.0f) : acc;
}

// In place. The largest score is subtracted first, so that no exponential overflows.
extern "C" __global__ void softmax(float* y, int N, int classes) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= N) return;
  float* const scores = y + (long long)n * classes;
  float largest = scores[0], sum = 0.0f;
  for (int k = 1; k < classes; k++) largest = fmaxf(largest, scores[k]);
  for (int k = 0; k < classes; k++) sum += scores[k] = expf(scores[k] - largest);
  for (int k = 0; k < classes; k++) scores[k] /= sum;
}
