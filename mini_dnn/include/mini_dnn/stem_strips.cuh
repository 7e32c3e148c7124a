// The first layers of a residual network in strips: #include <mini_dnn/stem_strips.cuh>
//
// The layers, weights and layout of images are those of stem.cuh, for images whose sides are divisible by 8. Here a
// warpgroup moves down a strip of 14 columns of the output. A step computes four rows of the convolution, of 32 windows
// each (29 of them are needed), and two rows of the output.
//
// Operands are transposed: rows of the product are channels, and columns are windows. A thread has all rows of its
// columns, so a maximum over rows uses its own registers only, and a maximum over columns needs one value from the
// neighbour. The bias is the same for all pixels of a channel, so it is added after the maximum, and so is ReLU. Only
// the output passes through shared memory. The last row of a step is also needed for the next maximum, and stays in
// registers.
//
// The image of a step is 13 rows in one of two buffers. Rows that two steps need are written to both. While products
// run, the next rows are loaded to registers. All other parts of a step wait for something, so a multiprocessor has
// four such blocks. Weights are in shared memory, because registers would allow fewer blocks.
#pragma once
#include <mini_dnn/stem.cuh>

#ifdef PTX_WGMMA
namespace strips {

constexpr int COLUMNS = 14, WINDOWS = 32, ROWS = 4, OUT_ROWS = ROWS / 2;  // of a strip; of a step
// Threads and channels of a block, blocks of a multiprocessor, and units of eight pixels in a row.
constexpr int THREADS = 128, BLOCKS = 4, CHANNELS = 64, EIGHTS = 9;
// The rows of the image in a step, and those of them that the previous step did not have.
constexpr int IMAGE_ROWS = 2 * ROWS + 5, NEW_ROWS = 2 * ROWS;
constexpr int SPARE = 4;  // units after the last row that are read but not used
constexpr int EVEN = (IMAGE_ROWS + 1) / 2 * WINDOWS + SPARE, ODD = IMAGE_ROWS / 2 * WINDOWS + SPARE;
constexpr int BUFFER = EVEN + ODD;  // units of 16 bytes: two pixels
constexpr int STAGED_BYTES = OUT_ROWS * COLUMNS * CHANNELS * 2;
static_assert(IMAGE_ROWS * EIGHTS <= THREADS, "a thread loads eight pixels of one row");

struct Shared {
  alignas(128) uint4 image[2][BUFFER];
  alignas(128) char out[STAGED_BYTES];
  alignas(128) char weights[stem::WEIGHT_BYTES];
  ptx::mbarrier ready;  // the weights have arrived
};

// Conversion of a channel's pixels to numbers: bytes are scaled, and other types are not changed.
template <class Pixel>
struct Scales {
  float factor[4], summand[4];
  __device__ __forceinline__ Scales(const stem::Source<Pixel>& from, int channels) {
#pragma unroll
    for (int c = 0; c < 4; c++) {
      const bool read = sizeof(Pixel) == 1 && c < channels;
      const float over = 1.0f / (read ? from.deviation[c] : 1.0f);
      factor[c] = over / 255.0f, summand[c] = read ? -from.mean[c] * over : 0.0f;
    }
  }
};

// Eight pixels of a row of the image between the load from global memory and the store to shared memory. They are kept
// as words, because a compiler that sees halves would unpack them at once, and wait for them.
template <class Pixel>
struct Pixels {
  static constexpr int MOST = 4, WORDS = 2 * sizeof(Pixel);  // channels; words of eight pixels
  unsigned found[MOST][WORDS];
  bool inside;

  // Loads pixels from row h and column w on; w is a multiple of 8.
  __device__ __forceinline__ void load(const stem::Source<Pixel>& from, const stem::Sizes& s, int n, int h, int w) {
    const long long plane = (long long)s.side * s.side;
    const Pixel* const first = from.images + n * s.channels * plane + (long long)h * s.side + w;
    inside = h >= 0 && h < s.side && w >= 0 && w < s.side;
#pragma unroll
    for (int c = 0; c < MOST; c++) {
      uint4 four[WORDS / 4 + 1] = {};
      if (inside && c < s.channels) {
        if constexpr (WORDS == 2) {
          const uint2 two = *reinterpret_cast<const uint2*>(first + c * plane);
          four[0] = make_uint4(two.x, two.y, 0, 0);
        } else {
#pragma unroll
          for (int i = 0; i < WORDS / 4; i++) four[i] = reinterpret_cast<const uint4*>(first + c * plane)[i];
        }
      }
#pragma unroll
      for (int i = 0; i < WORDS; i++)
        found[c][i] = i % 4 == 0   ? four[i / 4].x
                      : i % 4 == 1 ? four[i / 4].y
                      : i % 4 == 2 ? four[i / 4].z
                                   : four[i / 4].w;
    }
  }

  __device__ __forceinline__ float value(const Scales<Pixel>& scales, int c, int p) const {
    if constexpr (sizeof(Pixel) == 1) {
      const float byte = float(found[c][p / 4] >> p % 4 * 8 & 255);
      return inside ? byte * scales.factor[c] + scales.summand[c] : 0.0f;
    } else if constexpr (sizeof(Pixel) == 2) {
      const float2 two = ptx::unpack_halves(found[c][p / 2]);
      return p % 2 ? two.y : two.x;
    } else {
      return __uint_as_float(found[c][p]);
    }
  }

  // Stores them to row `row` of a step's image: four units from 4 * eight - 1 on.
  __device__ __forceinline__ void store(const Scales<Pixel>& scales, Shared& shared, int buffer, int row,
                                        int eight) const {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int unit = 4 * eight - 1 + i, p = 2 * i;
      if (unit < 0 || unit >= WINDOWS) continue;
      const uint4 two = make_uint4(ptx::pack_halves(value(scales, 0, p), value(scales, 1, p)),
                                   ptx::pack_halves(value(scales, 2, p), value(scales, 3, p)),
                                   ptx::pack_halves(value(scales, 0, p + 1), value(scales, 1, p + 1)),
                                   ptx::pack_halves(value(scales, 2, p + 1), value(scales, 3, p + 1)));
      shared.image[buffer][row % 2 * EVEN + row / 2 * WINDOWS + unit] = two;
      if (row >= NEW_ROWS)  // the next step needs the row, too
        shared.image[buffer ^ 1][row % 2 * EVEN + (row - NEW_ROWS) / 2 * WINDOWS + unit] = two;
    }
  }
};

// The sums of a step: 64 channels of 128 windows.
__device__ __forceinline__ void multiply(float (&d)[ROWS * 4][4], const char* weights, const uint4* image) {
  ptx::wgmma_fence();
#pragma unroll
  for (int r = 0; r < stem::FILTER_ROWS; r++) {
    const auto left = ptx::matrix_descriptor(weights + r * 4 * stem::K_BYTES, stem::K_BYTES, stem::CORE_BYTES);
    const auto right = ptx::matrix_descriptor(image + r % 2 * EVEN + r / 2 * WINDOWS, 16, 128);
#pragma unroll
    for (int j = 0; j < stem::STEPS; j++)
      ptx::wgmma_m64k16<ROWS * WINDOWS, ptx::Half, false, false>(d, left + j * (2 * stem::K_BYTES >> 4), right + 2 * j,
                                                                 r > 0 || j > 0);
  }
  ptx::wgmma_commit();
}

// Windows before the convolution's first column or after its last one must not affect a maximum.
__device__ __forceinline__ void leave_out(float (&d)[ROWS * 4][4], int left, int conv_side) {
  const int t = threadIdx.x % 4, first = 2 * left - 1;
  if (left == 0 && t == 0) {
#pragma unroll
    for (int row = 0; row < ROWS; row++) d[4 * row][0] = d[4 * row][2] = -INFINITY;
  }
  if (first + 2 * COLUMNS >= conv_side) {
#pragma unroll
    for (int i = 0; i < ROWS * 4; i++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (first + i % 4 * 8 + t * 2 + e % 2 >= conv_side) d[i][e] = -INFINITY;
  }
}

// Computes the maxima of 3 x 3 windows from a step's sums and the row above them, applies bias and ReLU, and stores the
// results to shared memory in rows of 128 bytes whose units of 16 bytes are swizzled.
__device__ __forceinline__ void pool(const float (&d)[ROWS * 4][4], float (&above)[4][4], const float (&bias)[2],
                                     char* to) {
  const int lane = threadIdx.x % 32, t = lane % 4, next = lane / 4 * 4 + (t + 1) % 4;
#pragma unroll
  for (int p = 0; p < OUT_ROWS; p++) {
    float most[5][4];  // maxima over three rows, for eight columns each; there are none after the last columns
#pragma unroll
    for (int g = 0; g < 4; g++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float first = p == 0 ? above[g][e] : d[(2 * p - 1) * 4 + g][e];
        most[g][e] = fmaxf(fmaxf(first, d[2 * p * 4 + g][e]), d[(2 * p + 1) * 4 + g][e]);
      }
#pragma unroll
    for (int e = 0; e < 4; e++) most[4][e] = -INFINITY;
#pragma unroll
    for (int g = 0; g < 4; g++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float right = __shfl_sync(~0u, t == 0 ? most[g + 1][2 * h] : most[g][2 * h], next);
        const float value = fmaxf(fmaxf(most[g][2 * h], most[g][2 * h + 1]), right) + bias[h];
        const int column = 4 * g + t, eight = threadIdx.x / 32 * 2 + h;
        if (column < COLUMNS)
          *reinterpret_cast<half*>(to + (p * COLUMNS + column) * 128 + (eight ^ column % 8) * 16 + lane / 4 * 2) =
              __float2half(fmaxf(value, 0.0f));
      }
  }
#pragma unroll
  for (int g = 0; g < 4; g++)
#pragma unroll
    for (int e = 0; e < 4; e++) above[g][e] = d[(ROWS - 1) * 4 + g][e];
}

// Stores two rows of the output, 16 bytes per thread.
__device__ __forceinline__ void write(const char* out, const stem::Sizes& s, uint4* y, int n, int row, int left,
                                      int channel) {
  for (int i = threadIdx.x; i < OUT_ROWS * COLUMNS * 8; i += THREADS) {
    const int part = i % 8, column = i / 8 % COLUMNS, p = i / 8 / COLUMNS;
    if (left + column >= s.side_out || row + p >= s.side_out) continue;
    const long long pixel = ((long long)n * s.side_out + row + p) * s.side_out + left + column;
    y[(pixel * s.K + channel) / 8 + part] =
        *reinterpret_cast<const uint4*>(out + (p * COLUMNS + column) * 128 + (part ^ column % 8) * 16);
  }
}

// Computes steps `first` to `last` of a strip of image n, from column `left` of the output on, for 64 channels from
// `channel` on. The block is one warpgroup. If there is a step before the first one, its last row is computed again.
template <class Pixel>
__device__ __forceinline__ void make(const stem::Source<Pixel>& from, const half* w, const float* bias,
                                     const stem::Sizes& s, uint4* y, int n, int left, int first, int last,
                                     int channel) {
  __shared__ Shared shared;
  const int lane = threadIdx.x % 32, begin = max(first - 1, 0);
  const int row = threadIdx.x / EIGHTS, eight = threadIdx.x % EIGHTS, w0 = 4 * left - 8 + 8 * eight;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&shared.ready, 1);
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive_expect_tx(&shared.ready, stem::WEIGHT_BYTES);
    ptx::bulk_load(shared.weights, w + channel / CHANNELS * (stem::WEIGHT_BYTES / 2), stem::WEIGHT_BYTES,
                   &shared.ready);
  }
  float shift[2], above[4][4];
#pragma unroll
  for (int h = 0; h < 2; h++) shift[h] = bias[channel + threadIdx.x / 32 * 16 + lane / 4 + 8 * h];
#pragma unroll
  for (int i = 0; i < 16; i++) above[i / 4][i % 4] = -INFINITY;
  if (threadIdx.x < 4 * SPARE) {
    const int plane = threadIdx.x / SPARE, end = plane % 2 ? BUFFER : EVEN;
    shared.image[plane / 2][end - SPARE + threadIdx.x % SPARE] = make_uint4(0, 0, 0, 0);
  }
  ptx::grid_launch_dependents();
  ptx::grid_wait();
  const Scales<Pixel> scales(from, s.channels);
  Pixels<Pixel> pixels;
  if (row < IMAGE_ROWS) {
    pixels.load(from, s, n, 2 * ROWS * begin - 3 + row, w0);
    pixels.store(scales, shared, 0, row, eight);
  }
  ptx::fence_proxy_async();
  __syncthreads();  // the first step's image and the mbarrier are ready
  ptx::mbarrier_wait(&shared.ready, 0);
#pragma unroll 1
  for (int step = begin; step < last; step++) {
    const int buffer = (step - begin) % 2;
    float d[ROWS * 4][4];
    multiply(d, shared.weights, shared.image[buffer]);
    const bool more = step + 1 < last && row < NEW_ROWS;
    if (more) pixels.load(from, s, n, 2 * ROWS * (step + 1) + 2 + row, w0);
    if (step > first) write(shared.out, s, y, n, (step - 1) * OUT_ROWS, left, channel);
    ptx::wgmma_wait<0>(d);
    leave_out(d, left, s.conv_side);
    __syncthreads();  // the products have read the image, and the previous output has been read
    pool(d, above, shift, shared.out);
    if (more) pixels.store(scales, shared, buffer ^ 1, IMAGE_ROWS - NEW_ROWS + row, eight);
    ptx::fence_proxy_async();
    __syncthreads();  // the next image and the output are in shared memory
  }
  write(shared.out, s, y, n, (last - 1) * OUT_ROWS, left, channel);
}

}  // namespace strips
#endif
