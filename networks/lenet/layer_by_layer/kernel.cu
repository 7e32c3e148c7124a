// networks/lenet/layer_by_layer: one kernel per layer of LeNet, all intermediate results in GPU memory.
//
// Idea      Between its layers, a network loses time on copies to the host and back, and not in kernels: 1.0 GB for the
//           output of conv1 alone. Here images are copied once, and ten probabilities per image are copied back.
// Layout    images (N,1,H,W) bytes or fp32; every other array fp32, C order.
// Mapping   a thread -> an element of the layer's output; a thread -> an image in softmax.
// Roofline  every array is written and read once, and once more by ReLU: 8 GB at N = 10,000, 1.9 ms at 4.3 TB/s. The
//           convolutions need two loads per FMA: 7 and 19 ms, as m1/direct.
// Gain      over m1/direct with the rest of the network on the host: no copies of both layers' x and y, 2.3 GB or 42 ms
//           at 55 GB/s, and no other layers on a CPU.
// Limits    sizes are compile-time constants, as in models/lenet.py. The number of blocks, N M P Q / THREADS, is below
//           2^31.
// Hazards   none: threads share nothing, and a launch starts after the previous one has ended.
// Source    LeCun et al., "Gradient-based learning applied to document recognition", 1998.
extern "C" __global__ void normalise(const unsigned char* bytes, float* x, long long count) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = bytes[i] / 255.0f;
}

// x (N,C,H,W) * w (M,C,R,S) -> y (N,M,P,Q); count is the number of elements of y, here and below.
extern "C" __global__ void convolve(const float* x, const float* w, float* y, long long count, int C, int H, int W,
                                    int M, int R, int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int q = i % Q, p = i / Q % P, m = i / (P * Q) % M;
  const float* const image = x + i / ((long long)M * P * Q) * C * H * W;
  float acc = 0.0f;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) acc += image[(c * H + p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
  y[i] = acc;
}

extern "C" __global__ void relu(float* y, long long count) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = fmaxf(y[i], 0.0f);
}

// Maxima of SIDE x SIDE windows of x (..., H, W); windows at the lower and right edges may be cut short.
extern "C" __global__ void max_pool(const float* x, float* y, long long count, int H, int W, int P, int Q, int side) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int q = i % Q, p = i / Q % P;
  const float* const plane = x + i / (P * Q) * H * W;
  float largest = plane[p * side * W + q * side];
  for (int h = p * side; h < min((p + 1) * side, H); h++)
    for (int w = q * side; w < min((q + 1) * side, W); w++) largest = fmaxf(largest, plane[h * W + w]);
  y[i] = largest;
}

// y (N,outputs) = x (N,inputs) weight^T + bias, weight (outputs,inputs)
extern "C" __global__ void linear(const float* x, const float* weight, const float* bias, float* y, long long count,
                                  int inputs, int outputs) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int output = i % outputs;
  const float* const row = x + i / outputs * inputs;
  float acc = bias[output];
  for (int k = 0; k < inputs; k++) acc += row[k] * weight[output * inputs + k];
  y[i] = acc;
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
