// networks/lenet/whole: LeNet in two kernels: images to 1,296 features each, one image per block; features to classes.
//
// Idea      One image and its pooled maps fit in shared memory, so only the features leave the multiprocessor. Linear
//           layers, in contrast, should use each loaded weight for many images. They are therefore a separate kernel,
//           with 32 images per block.
// Layout    images (N,1,86,86) bytes or fp32, or (N,1,28,28) bytes; features (N,1296), weights as in models/lenet.py,
//           fp32, C order. Dynamic shared memory holds an image (86,86) and pool1 (4,40,40), constant memory the
//           filters.
// Mapping   features: a block -> an image. First layer: a thread -> pooled pixels of all 4 channels. Second: a warp ->
//           2 channels, its lanes -> pooled pixels. classify: a lane -> an output, a warp -> 4 images.
// Roofline  bytes: images in, features out and in: 0.4 GB at N = 10,000, 0.1 ms at 4.3 TB/s (0.18 GB if images are
//           bytes). 97.6 GFLOP in fp32 take 1.5 ms at 67 TFLOP/s, and more because in the second layer only 8 of 10
//           lanes have a pixel.
// Gain      over networks/lenet/fused_pool: a factor of at most 1.5, because FMAs are the limit. Overlapping windows
//           are read from shared memory instead of caches.
// Limits    55,184 bytes of shared memory per block: one block per multiprocessor on sm_75, two (by registers) on
//           others.
// Hazards   in features, one barrier waits until the image is complete, and another one until pool1 is. In classify,
//           one waits until the tiles are complete, and another one until they have been read. Windows at the lower and
//           right edges are truncated: rows and columns beyond the map are not read, and their results are ignored.
// Source    CUDA C++ Programming Guide, "Shared Memory", "Warp Shuffle Functions"; the resizing computes what Pillow
//           does with bytes (Resample.c), so that both give the same pixels.
#ifdef RESIZE
#include <mini_dnn/bilinear.cuh>
#endif

constexpr unsigned ALL = 0xffffffff;  // lanes
constexpr int FILTER = 7, WARP = 32;
constexpr int SIDE = 86, SIDE1 = 40, SIDE2 = 9;                       // of the image and of the pooled maps
constexpr int FEATURES = 1296, HIDDEN = 32, CLASSES = 10, PART = 48;  // PART features at a time in classify
constexpr int IMAGES = 4;                                             // of a warp in classify
__constant__ float w1[4 * 1 * FILTER * FILTER], w2[16 * 4 * FILTER * FILTER];

#ifdef BYTES
typedef unsigned char Pixel;
__device__ float value(Pixel pixel) { return pixel / 255.0f; }
#else
typedef float Pixel;
__device__ float value(Pixel pixel) { return pixel; }
#endif

#ifdef RESIZE
constexpr int SMALL = bilinear::from_side;

// The block's image, resized in `memory`, which pool1 does not use yet.
__device__ void load(const Pixel* images, float* image, float* memory) {
  unsigned char* const small = reinterpret_cast<unsigned char*>(memory);
  unsigned char* const wide = small + SMALL * SMALL;  // (SMALL,SIDE)
  const Pixel* const pixels = images + (long long)blockIdx.x * SMALL * SMALL;
  for (int i = threadIdx.x; i < SMALL * SMALL; i += blockDim.x) small[i] = pixels[i];
  __syncthreads();  // the small image is complete
  for (int i = threadIdx.x; i < SMALL * SIDE; i += blockDim.x)
    wide[i] = bilinear::resized(small + i / SIDE * SMALL, 1, i % SIDE);
  __syncthreads();  // its rows have been resized
  for (int i = threadIdx.x; i < SIDE * SIDE; i += blockDim.x)
    image[i] = value(bilinear::resized(wide + i % SIDE, SIDE, i / SIDE));
}
#else
__device__ void load(const Pixel* images, float* image, float*) {
  const Pixel* const pixels = images + (long long)blockIdx.x * SIDE * SIDE;
  for (int i = threadIdx.x; i < SIDE * SIDE; i += blockDim.x) image[i] = value(pixels[i]);
}
#endif

// The pooled pixel (p, q) of TILE_M channels, from an image x (C,H,W) and their filters w (TILE_M,C,FILTER,FILTER).
template <int C, int H, int W, int POOL, int TILE_M>
__device__ void conv_relu_pool(const float* x, const float* w, int p, int q, float (&largest)[TILE_M]) {
  constexpr int P = H - FILTER + 1, Q = W - FILTER + 1, WINDOW = POOL + FILTER - 1;
  static_assert(W % 2 == 0 && POOL % 2 == 0 && WINDOW % 2 == 0, "rows are read in pairs");
  float acc[TILE_M][POOL][POOL] = {};
  for (int c = 0; c < C; c++) {
#pragma unroll
    for (int h = 0; h < WINDOW; h++) {
      float row[WINDOW];
#pragma unroll
      for (int i = 0; i < WINDOW; i += 2) {
        const bool inside = p * POOL + h < H && q * POOL + i < W;
        const float* const pair = x + (c * H + p * POOL + h) * W + q * POOL + i;
        const float2 two = inside ? *reinterpret_cast<const float2*>(pair) : make_float2(0.0f, 0.0f);
        row[i] = two.x;
        row[i + 1] = two.y;
      }
#pragma unroll
      for (int m = 0; m < TILE_M; m++)
#pragma unroll
        for (int r = 0; r < FILTER; r++)
#pragma unroll
          for (int s = 0; s < FILTER; s++) {
            if (h - r < 0 || h - r >= POOL) continue;
            const float weight = w[((m * C + c) * FILTER + r) * FILTER + s];
#pragma unroll
            for (int j = 0; j < POOL; j++) acc[m][h - r][j] += row[j + s] * weight;
          }
    }
  }
#pragma unroll
  for (int m = 0; m < TILE_M; m++) {
    largest[m] = 0.0f;  // ReLU of the maximum is the maximum of ReLUs
#pragma unroll
    for (int i = 0; i < POOL; i++)
#pragma unroll
      for (int j = 0; j < POOL; j++)
        if (p * POOL + i < P && q * POOL + j < Q) largest[m] = fmaxf(largest[m], acc[m][i][j]);
  }
}

extern "C" __global__ void features(const Pixel* images, float* features) {
  extern __shared__ __align__(16) float shared[];
  float* const image = shared;
  float* const pool1 = shared + SIDE * SIDE;
  float* const out = features + (long long)blockIdx.x * FEATURES;

  load(images, image, pool1);
  __syncthreads();  // the image is complete
  for (int i = threadIdx.x; i < SIDE1 * SIDE1; i += blockDim.x) {
    float largest[4];
    conv_relu_pool<1, SIDE, SIDE, 2, 4>(image, w1, i / SIDE1, i % SIDE1, largest);
#pragma unroll
    for (int m = 0; m < 4; m++) pool1[m * SIDE1 * SIDE1 + i] = largest[m];
  }
  __syncthreads();  // pool1 is complete
  constexpr int TILE_M = 2;
  for (int m0 = threadIdx.x / WARP * TILE_M; m0 < 16; m0 += blockDim.x / WARP * TILE_M)
    for (int i = threadIdx.x % WARP; i < SIDE2 * SIDE2; i += WARP) {
      float largest[TILE_M];
      conv_relu_pool<4, SIDE1, SIDE1, 4, TILE_M>(pool1, w2 + m0 * 4 * FILTER * FILTER, i / SIDE2, i % SIDE2, largest);
#pragma unroll
      for (int m = 0; m < TILE_M; m++) out[(m0 + m) * SIDE2 * SIDE2 + i] = largest[m];
    }
}

// The linear layers and softmax: 32 images per block of 8 warps.
extern "C" __global__ void classify(const float* features, const float* weight1, const float* bias1,
                                    const float* weight2, const float* bias2, float* probabilities, int N) {
  constexpr int BLOCK = 8 * IMAGES;  // images
  __shared__ float x_tile[BLOCK][PART];
  __shared__ float w_tile[HIDDEN][PART + 1];  // + 1: lanes read a column, each in a bank of its own
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int n0 = blockIdx.x * BLOCK;
  float acc[IMAGES];
#pragma unroll
  for (int i = 0; i < IMAGES; i++) acc[i] = bias1[lane];

  for (int k0 = 0; k0 < FEATURES; k0 += PART) {
    for (int i = threadIdx.x; i < BLOCK * PART; i += blockDim.x) {
      const int n = n0 + i / PART, k = i % PART;
      x_tile[i / PART][k] = n < N ? features[(long long)n * FEATURES + k0 + k] : 0.0f;
      w_tile[i / PART][k] = weight1[(i / PART) * FEATURES + k0 + k];  // HIDDEN is BLOCK
    }
    __syncthreads();  // the tiles are complete
    for (int k = 0; k < PART; k++)
#pragma unroll
      for (int i = 0; i < IMAGES; i++) acc[i] += x_tile[warp * IMAGES + i][k] * w_tile[lane][k];
    __syncthreads();  // the tiles have been read
  }
#pragma unroll
  for (int i = 0; i < IMAGES; i++) {
    const int n = n0 + warp * IMAGES + i, k = min(lane, CLASSES - 1);
    const float hidden = fmaxf(acc[i], 0.0f);
    float score = bias2[k];
    for (int j = 0; j < HIDDEN; j++) score += __shfl_sync(ALL, hidden, j) * weight2[k * HIDDEN + j];
    float largest = score;  // lanes beyond the classes repeat the last one
    for (int step = WARP / 2; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL, largest, step));
    const float part = lane < CLASSES ? expf(score - largest) : 0.0f;
    float sum = part;
    for (int step = WARP / 2; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    if (lane < CLASSES && n < N) probabilities[(long long)n * CLASSES + lane] = part / sum;
  }
}
