// conv2d_padded/v2_wmma: conv2d_padded/v1_shared on the tensor cores, for halves with channels last.
//
// Idea      The tiles of v1 are operands for the tensor cores. With channels last, the products of a sum that belong to
//           one pixel of the window are C adjacent elements in x and in w: eight of them are one load of 16 bytes, and
//           one test determines for all eight whether that pixel is outside the image.
// Layout    x (N,H,W,C), w (K,R,R,C), residual and y (N,P,Q,K), halves; sums and bias in fp32. x_tile [pixel][t] and
//           w_tile [channel][t], half. Each line is followed by PAD, 16 bytes, so that pieces that are read at once are
//           in different banks.
// Mapping   block -> TILE_P pixels, counted through all images, and TILE_C channels; warp -> 32 x 32 of them. A thread
//           fills one piece of several rows, so that it divides by C once per step. Sums pass through a patch of 16 x
//           16 floats per warp, because CUDA does not specify which thread has which sum.
// Roofline  layer1 of ResNet-18 with 64 images: 14.8 GFLOP, 0.015 ms at 990 TFLOP/s; 51 MB, 0.012 ms at 4.3 TB/s. For
//           16 products of a sum, a warp reads 2 KB from shared memory for 16,384 FMAs: 2,048 per SM and clock at 128
//           bytes, the rate of the tensor cores.
// Gain      over conv2d_padded/v1_shared: a factor of 6, to 150 TFLOP/s. A block still loads, waits, multiplies, and
//           waits again.
// Limits    halves, channels last; fewer than 2^31 pixels of y. If C is not divisible by 8, as in an image of three
//           colours, elements are loaded one at a time.
// Hazards   __syncthreads as in v1. Pointers of fragments are aligned to 32 bytes, pitches to 16. Each warp has its own
//           patch: __syncwarp is sufficient between its stores, its loads and the next stores.
// Source    S. Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", arXiv:1410.0759; CUDA C++ Programming
//           Guide, "Warp Matrix Functions".
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int SIDE = 16, PAD = 8, PITCH = TILE_K + PAD;    // of a product; halves after each line of a tile
constexpr int PATCH_PITCH = SIDE + 4;                      // floats
constexpr int PIECES = TILE_K / IN_WIDE;                   // of a line
constexpr int AT_ONCE = THREADS / PIECES;                  // lines that all threads fill at once
constexpr int WARP = 32, ROWS = WARP / SIDE, COLS = ROWS;  // pixels and channels of a warp; products
static_assert(TILE_P == 4 * WARP && TILE_C == 2 * WARP && THREADS == 256, "4 x 2 warps");
static_assert(TILE_C % AT_ONCE == 0 && TILE_P % AT_ONCE == 0, "a thread fills one piece of several lines");

template <int count>
struct alignas(count * sizeof(half)) Wide {  // the elements of one load or store
  half part[count];
};

// A pixel of y: the position in x at which its window begins, which may be outside the image.
struct Window {
  int n, h, w;
};

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    convolve(const half* x, const half* w, const float* bias, const half* residual, half* y, int pixels, int C, int H,
             int W, int K, int stride, int padding, int P, int Q) {
  __shared__ __align__(128) half x_tile[TILE_P][PITCH], w_tile[TILE_C][PITCH];
  __shared__ __align__(128) float patches[THREADS / 32][SIDE][PATCH_PITCH];
  __shared__ Window windows[TILE_P];
  const int first = blockIdx.x * TILE_P, first_k = blockIdx.y * TILE_C, taps = C * R * R;
  for (int i = threadIdx.x; i < TILE_P; i += THREADS) {
    const int pixel = first + i, q = pixel % Q, p = pixel / Q % P;
    windows[i] = {pixel < pixels ? pixel / (P * Q) : -1, p * stride - padding, q * stride - padding};
  }
  __syncthreads();  // the positions of all windows are stored

  const int warp = threadIdx.x / 32, warp_row = warp / 2 * WARP, warp_col = warp % 2 * WARP;
  const int line = threadIdx.x / PIECES, piece = threadIdx.x % PIECES * IN_WIDE;
  wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, float> acc[ROWS][COLS];
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLS; j++) wmma::fill_fragment(acc[i][j], 0.0f);
  for (int t0 = 0; t0 < taps; t0 += TILE_K) {
    const int t = t0 + piece, of_window = t / C, c = t % C, r = of_window / R, s = of_window % R;
#pragma unroll
    for (int i = 0; i < TILE_P; i += AT_ONCE) {
      const Window window = windows[i + line];
      const int h = window.h + r, column = window.w + s;
      Wide<IN_WIDE> value = {};
      if (window.n >= 0 && t < taps && h >= 0 && h < H && column >= 0 && column < W)
        value = *reinterpret_cast<const Wide<IN_WIDE>*>(x + (((long long)window.n * H + h) * W + column) * C + c);
      *reinterpret_cast<Wide<IN_WIDE>*>(&x_tile[i + line][piece]) = value;
    }
#pragma unroll
    for (int i = 0; i < TILE_C; i += AT_ONCE) {
      Wide<IN_WIDE> value = {};
      if (first_k + i + line < K && t < taps)
        value = *reinterpret_cast<const Wide<IN_WIDE>*>(w + (long long)(first_k + i + line) * taps + t);
      *reinterpret_cast<Wide<IN_WIDE>*>(&w_tile[i + line][piece]) = value;
    }
    __syncthreads();  // the tiles are complete
#pragma unroll
    for (int l = 0; l < TILE_K; l += SIDE) {
      wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, half, wmma::col_major> right[COLS];
      for (int j = 0; j < COLS; j++) wmma::load_matrix_sync(right[j], &w_tile[warp_col + j * SIDE][l], PITCH);
      for (int i = 0; i < ROWS; i++) {
        wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, half, wmma::row_major> left;
        wmma::load_matrix_sync(left, &x_tile[warp_row + i * SIDE][l], PITCH);
        for (int j = 0; j < COLS; j++) wmma::mma_sync(acc[i][j], left, right[j], acc[i][j]);
      }
    }
    __syncthreads();  // the tiles have been read
  }

  float (&patch)[SIDE][PATCH_PITCH] = patches[warp];
#pragma unroll  // registers cannot be indexed
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int j = 0; j < COLS; j++) {
      wmma::store_matrix_sync(&patch[0][0], acc[i][j], PATCH_PITCH, wmma::mem_row_major);
      __syncwarp();  // the patch is complete
      for (int e = threadIdx.x % 32 * OUT_WIDE; e < SIDE * SIDE; e += 32 * OUT_WIDE) {
        const int pixel = first + warp_row + i * SIDE + e / SIDE, k = first_k + warp_col + j * SIDE + e % SIDE;
        if (pixel >= pixels || k >= K) continue;
        const long long to = (long long)pixel * K + k;
        Wide<OUT_WIDE> value = {};
        if (RESIDUAL) value = *reinterpret_cast<const Wide<OUT_WIDE>*>(residual + to);
#pragma unroll
        for (int o = 0; o < OUT_WIDE; o++) {
          float sum = patch[e / SIDE][e % SIDE + o] + bias[k + o];
          if (RESIDUAL) sum += float(value.part[o]);
          value.part[o] = half(RELU ? fmaxf(sum, 0.0f) : sum);
        }
        *reinterpret_cast<Wide<OUT_WIDE>*>(y + to) = value;
      }
      __syncwarp();  // the patch has been read
    }
}
