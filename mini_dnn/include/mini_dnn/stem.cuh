// The first layers of a residual network in one kernel: #include <mini_dnn/stem.cuh>
//
// These are a convolution of 7 x 7 with stride 2, bias, ReLU, and a maximum of 3 x 3 with stride 2. A block computes
// POOL_ROWS x POOL_COLUMNS pixels of the output, and all pixels of the convolution that these need. If two blocks need
// a pixel, both compute it.
//
// There is no matrix of windows. In shared memory, a pixel is four channels, 8 bytes, and two pixels are a unit of 16
// bytes, eight k of a product. Windows are two pixels apart, so the next row of the product starts one unit further. A
// filter row is four units from there, so the rows overlap. A matrix descriptor can describe this: 16 bytes from row to
// row, and 16 bytes from eight k to the next eight. Windows are also two rows apart, so even and odd rows of the image
// are stored separately. The window below is then one row of units further, and a tile of 64 windows continues across
// rows. Windows that start after the last one of a row, three per row, are computed and not used. k is 7 x 32, of which
// 147 are not zero: the fourth channel is zero, and so is the first of eight columns, because pairs of pixels start at
// even columns.
#pragma once
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>

#ifdef PTX_WGMMA
namespace stem {

constexpr int COLUMNS = 64, STEPS = 2;             // output channels of a block; products of a filter row
constexpr int CORE_BYTES = 128, FILTER_ROWS = 7;   // of 8 columns and 8 k
constexpr int K_BYTES = COLUMNS / 8 * CORE_BYTES;  // of 8 k
constexpr int WEIGHT_BYTES = FILTER_ROWS * 4 * K_BYTES;

struct Sizes {
  int channels, side, conv_side, side_out, K;  // of the image; of the convolution, of the output, its channels
};

template <int POOL_ROWS_, int POOL_COLUMNS_, int WARPGROUPS_>
struct Tile {
  static constexpr int POOL_ROWS = POOL_ROWS_, POOL_COLUMNS = POOL_COLUMNS_, WARPGROUPS = WARPGROUPS_;
  static constexpr int THREADS = WARPGROUPS * 128, ROWS = 2 * POOL_ROWS + 1, WIDE = 2 * POOL_COLUMNS + 1;
  static constexpr int UNITS = WIDE + 3;                                  // of a row: a window has four
  static constexpr int TILES = (ROWS * UNITS + 63) / 64;                  // of 64 windows
  static constexpr int PLANE = (TILES * 64 + 3 * UNITS + 4 + 7) / 8 * 8;  // units of the rows of a parity
  static constexpr int IMAGE_ROWS = 2 * ROWS + 5;
  static constexpr int SHARED_BYTES = WEIGHT_BYTES + 2 * PLANE * 16 + TILES * 64 * COLUMNS * 2;
};

// Eight pixels of a row, side by side.
template <class Pixel>
struct alignas(8 * sizeof(Pixel) < 16 ? 8 * sizeof(Pixel) : 16) Eight {
  Pixel part[8];
};

// A pixel of the image in the form that the convolution uses.
template <class Pixel>
struct Source {
  const Pixel* images;
  const float *mean, *deviation;  // of channels: used if pixels are bytes
  __device__ __forceinline__ float get(Pixel pixel, int channel) const {
    if constexpr (sizeof(Pixel) == 1)
      return (float(pixel) * (1 / 255.0f) - mean[channel]) / deviation[channel];
    else
      return float(pixel);
  }
};

// Loads rows of the image from `row` on. A thread loads eight pixels at a time. The first eight start two columns
// before the first unit, so that they are aligned. Pixels outside the image are zero.
template <class T, class Pixel>
__device__ __forceinline__ void load(const Source<Pixel>& from, const Sizes& s, uint4* planes, int n, int row,
                                     int column) {
  constexpr int CHANNELS = 4, EIGHTS = (T::UNITS + 1 + 3) / 4, ITEMS = T::IMAGE_ROWS * EIGHTS;
  const long long plane = (long long)s.side * s.side;
  const Pixel* const image = from.images + n * s.channels * plane;
  for (int i = threadIdx.x; i < ITEMS; i += blockDim.x) {
    const int y = i / EIGHTS, eight = i - y * EIGHTS, h = row + y, w = column - 2 + 8 * eight;
    float value[8][CHANNELS] = {};
    if (h >= 0 && h < s.side && s.side % 8 == 0 && w >= 0 && w < s.side) {
      Eight<Pixel> found[CHANNELS];
#pragma unroll
      for (int c = 0; c < CHANNELS; c++)
        if (c < s.channels)
          found[c] = *reinterpret_cast<const Eight<Pixel>*>(image + c * plane + (long long)h * s.side + w);
#pragma unroll
      for (int c = 0; c < CHANNELS; c++)
#pragma unroll
        for (int p = 0; p < 8; p++)
          if (c < s.channels) value[p][c] = from.get(found[c].part[p], c);
    } else if (h >= 0 && h < s.side && s.side % 8 != 0) {
#pragma unroll
      for (int p = 0; p < 8; p++)
#pragma unroll
        for (int c = 0; c < CHANNELS; c++)
          if (c < s.channels && w + p >= 0 && w + p < s.side)
            value[p][c] = from.get(image[c * plane + (long long)h * s.side + w + p], c);
    }
    uint4* const to = planes + y % 2 * T::PLANE + y / 2 * T::UNITS + 4 * eight - 1;
#pragma unroll
    for (int p = 0; p < 4; p++) {
      const float (&left)[CHANNELS] = value[2 * p], (&right)[CHANNELS] = value[2 * p + 1];
      if (4 * eight - 1 + p >= 0 && 4 * eight - 1 + p < T::UNITS)
        to[p] = make_uint4(ptx::pack_halves(left[0], left[1]), ptx::pack_halves(left[2], left[3]),
                           ptx::pack_halves(right[0], right[1]), ptx::pack_halves(right[2], right[3]));
    }
  }
  for (int parity = 0; parity < 2; parity++)  // after the last row
    for (int i = (T::IMAGE_ROWS + 1 - parity) / 2 * T::UNITS + threadIdx.x; i < T::PLANE; i += blockDim.x)
      planes[parity * T::PLANE + i] = make_uint4(0, 0, 0, 0);
}

// Processes 64 windows: products, bias and ReLU. The results go to shared memory as halves, 128 bytes per window, with
// swizzled pieces of 16 bytes.
template <class T>
__device__ __forceinline__ void convolve(const char* weights, const uint4* planes, char* to, int tile,
                                         const float* bias) {
  float d[COLUMNS / 8][4];
  const int lane = threadIdx.x % 32;
  ptx::wgmma_fence();
#pragma unroll
  for (int r = 0; r < FILTER_ROWS; r++) {
    const uint4* const first = planes + r % 2 * T::PLANE + tile * 64 + r / 2 * T::UNITS;
    const auto left = ptx::matrix_descriptor(first, 16, 128);
    const auto right = ptx::matrix_descriptor(weights + r * 4 * K_BYTES, K_BYTES, CORE_BYTES);
#pragma unroll
    for (int j = 0; j < STEPS; j++)
      ptx::wgmma_m64k16<COLUMNS, ptx::Half, false, false>(d, left + 2 * j, right + j * (2 * K_BYTES >> 4),
                                                          r > 0 || j > 0);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
  const int window = tile * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < COLUMNS / 8; i++) {
    const float2 more = *reinterpret_cast<const float2*>(bias + 8 * i + lane % 4 * 2);
#pragma unroll
    for (int h = 0; h < 2; h++)
      *reinterpret_cast<unsigned*>(to + (window + 8 * h) * 128 + (i ^ window % 8) * 16 + lane % 4 * 4) =
          ptx::pack_halves(fmaxf(d[i][2 * h] + more.x, 0.0f), fmaxf(d[i][2 * h + 1] + more.y, 0.0f));
  }
}

// Maxima of 3 x 3 windows of these results. Outside the convolution's output they count as 0, the minimum after ReLU.
template <class T>
__device__ __forceinline__ void pool(const char* from, const Sizes& s, uint4* y, int n, int top, int left,
                                     int channel) {
  for (int i = threadIdx.x; i < T::POOL_ROWS * T::POOL_COLUMNS * 8; i += blockDim.x) {
    const int part = i % 8, p = i / 8 / T::POOL_COLUMNS, q = i / 8 % T::POOL_COLUMNS;
    if (top + p >= s.side_out || left + q >= s.side_out) continue;
    __half2 most[4];
#pragma unroll
    for (int e = 0; e < 4; e++) most[e] = __float2half2_rn(0.0f);
#pragma unroll
    for (int tap = 0; tap < 9; tap++) {
      const int down = 2 * p + tap / 3, right = 2 * q + tap % 3, h = 2 * top - 1 + down, w = 2 * left - 1 + right;
      if (h < 0 || h >= s.conv_side || w < 0 || w >= s.conv_side) continue;
      const int window = down * T::UNITS + right;
      const uint4 found = *reinterpret_cast<const uint4*>(from + window * 128 + (part ^ window % 8) * 16);
      const __half2* const eight = reinterpret_cast<const __half2*>(&found);
#pragma unroll
      for (int e = 0; e < 4; e++) most[e] = __hmax2(most[e], eight[e]);
    }
    const long long pixel = ((long long)n * s.side_out + top + p) * s.side_out + left + q;
    y[(pixel * s.K + channel) / 8 + part] = *reinterpret_cast<const uint4*>(most);
  }
}

// Computes pixels of image n of the output, from row `top` and column `left` on, and channels from `channel` on. All
// threads of a block call it, even those that belong to no warpgroup. `memory` has the convolution, the image and the
// weights. Thread 0 has initialised the mbarrier of the weights, which has this parity.
template <class T, class Pixel>
__device__ __forceinline__ void make(const Source<Pixel>& from, const char* weights, const float* bias, const Sizes& s,
                                     uint4* y, char* memory, ptx::mbarrier* ready, int parity, int n, int top, int left,
                                     int channel) {
  char* const convolved = memory;
  uint4* const planes = reinterpret_cast<uint4*>(memory + T::TILES * 64 * COLUMNS * 2);
  char* const filters = reinterpret_cast<char*>(planes + 2 * T::PLANE);
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(ready, WEIGHT_BYTES);
    ptx::bulk_load(filters, weights + channel / COLUMNS * WEIGHT_BYTES, WEIGHT_BYTES, ready);
  }
  ptx::grid_wait();
  load<T>(from, s, planes, n, 4 * top - 5, 4 * left - 6);
  ptx::fence_proxy_async();
  __syncthreads();  // the image is complete
  ptx::grid_launch_dependents();
  ptx::mbarrier_wait(ready, parity);
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  for (int tile = warpgroup; warpgroup < T::WARPGROUPS && tile < T::TILES; tile += T::WARPGROUPS)
    convolve<T>(filters, planes, convolved, tile, bias + channel);
  __syncthreads();  // all windows are complete
  pool<T>(convolved, s, y, n, top, left, channel);
}

}  // namespace stem
#endif
