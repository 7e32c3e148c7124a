// A 3 x 3 convolution with 64 channels in and out, whose pixels are loaded once: #include
// <mini_dnn/implicit_rows.cuh>
//
// With 64 output channels, a product has too little work for the bytes that it loads from L2: implicit.cuh loads each
// pixel nine times, once for each position in the filter. Here some rows of an image are loaded once, with a column of
// zeros on each side and with the rows above and below, one after the other, 128 bytes per pixel. Position (r, s) of
// the filter needs the pixels that are r rows and s columns further. For all pixels at once, these are the same matrix,
// r PITCH + s lines further. The swizzle still fits, because it depends only on addresses. Pixels are the columns of
// the product, 120 of them, and output channels are its 64 rows: both operands then arrive from shared memory at the
// tensor cores' full rate. The cost is two unused columns in each PITCH. All weights, 72 KB, stay in shared memory.
//
// Sums are channel by channel in registers, and are stored pixel by pixel. stmatrix transposes them into the memory
// that holds the residual, which ldmatrix has transposed in the same way. Two warpgroups process tiles in turn: while
// one stores its results, the other one multiplies.
#pragma once
#include <mini_dnn/implicit.cuh>
#include <mini_dnn/ptx_columns.cuh>

#ifdef PTX_WGMMA
namespace implicit_rows {

constexpr int CHANNELS = 64, PIXELS = 120, GROUPS = PIXELS / 8, LINE = 128;  // bytes per pixel
constexpr int WARPGROUPS = 2, THREADS = WARPGROUPS * 128 + 32, STAGES = 4, TAPS = 9;
constexpr int WEIGHT_BYTES = CHANNELS * LINE;                       // per position in the filter
constexpr int STAGE_BYTES = 240 * LINE, OUT_BYTES = PIXELS * LINE;  // room for 240 pixels of x; for 120 of y
constexpr int SHARED_BYTES = TAPS * WEIGHT_BYTES + STAGES * STAGE_BYTES + WARPGROUPS * OUT_BYTES;
static_assert(STAGE_BYTES % 1024 == 0 && OUT_BYTES % 1024 == 0, "swizzled lines start there");

struct Problem {
  int N, H, W;
  bool relu, residual;
  __device__ __forceinline__ int pitch() const { return W + 2; }
  __device__ __forceinline__ int rows() const { return PIXELS / pitch(); }            // rows per tile
  __device__ __forceinline__ int tiles() const { return (H + rows() - 1) / rows(); }  // tiles per image
};

// Tensor maps of x, (N H, W, 64) in boxes of a row and its two zeros; of w; of residual and y in boxes of a row.
struct Maps {
  const ptx::TensorMap &x, &w, &residual, &y;
};

struct Barriers {
  ptx::mbarrier weights, full[STAGES], empty[STAGES];
  // for each warpgroup: its part of the output memory is free; the residual has arrived; all warps have written
  ptx::mbarrier free[WARPGROUPS], residual[WARPGROUPS], written[WARPGROUPS];
};

__device__ __forceinline__ void produce(const Problem& p, const Maps& maps, char* pixels, Barriers& barriers,
                                        int count) {
  const int pitch = p.pitch(), rows = p.rows(), tiles = p.tiles();
  implicit::Stage<STAGES> stage;
  ptx::grid_wait();
  for (int i = blockIdx.x; i < count; i += gridDim.x, stage.next()) {
    const int n = i / tiles, top = (i - n * tiles) * rows - 1;
    ptx::mbarrier* const full = barriers.full + stage.index;
    ptx::mbarrier_wait(barriers.empty + stage.index, stage.parity ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, (rows + 2) * pitch * LINE);
    for (int j = 0; j < rows + 2; j++) {
      const bool there = top + j >= 0 && top + j < p.H;
      ptx::tensor_load(pixels + stage.index * STAGE_BYTES + j * pitch * LINE, maps.x, 0, -1,
                       there ? n * p.H + top + j : -1, full);
    }
  }
}

// The position of lane l's row for stmatrix or ldmatrix. There are four matrices of 8 pixels: two for channels of the
// warp, and two for the next 8 pixels.
__device__ __forceinline__ char* turned(char* out, int group) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int pixel = 8 * (group + lane / 16) + lane % 8, part = 2 * warp + lane / 8 % 2;
  return out + pixel * LINE + (part ^ pixel % 8) * 16;
}

__device__ __forceinline__ void finish(const Problem& p, const float (&d)[GROUPS][4], float2 bias, char* out) {
#pragma unroll
  for (int i = 0; i < GROUPS; i += 2) {
    unsigned both[4];
    if (p.residual) {
      if (i + 1 < GROUPS)
        ptx::ldmatrix_trans(both, turned(out, i));
      else
        ptx::ldmatrix_trans(reinterpret_cast<unsigned (&)[2]>(both), turned(out, i));
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      if (i + j / 2 >= GROUPS) continue;
      const float more_bias = j % 2 == 0 ? bias.x : bias.y;
      float low = d[i + j / 2][j % 2 * 2] + more_bias, high = d[i + j / 2][j % 2 * 2 + 1] + more_bias;
      if (p.residual) {
        const float2 more = ptx::unpack_halves(both[j]);
        low += more.x, high += more.y;
      }
      if (p.relu) low = fmaxf(low, 0.0f), high = fmaxf(high, 0.0f);
      both[j] = ptx::pack_halves(low, high);
    }
    if (i + 1 < GROUPS)
      ptx::stmatrix_trans(turned(out, i), both);
    else
      ptx::stmatrix_trans(turned(out, i), reinterpret_cast<unsigned (&)[2]>(both));
  }
}

__device__ __forceinline__ void consume(const Problem& p, const Maps& maps, const float* bias, const char* weights,
                                        const char* pixels, char* out, Barriers& barriers, int count, int warpgroup) {
  const int pitch = p.pitch(), rows = p.rows(), tiles = p.tiles(), lane = threadIdx.x % 32;
  const bool sends = threadIdx.x % 128 == 0;
  const int channel = threadIdx.x % 128 / 32 * 16 + lane / 4;
  const float2 two = make_float2(bias[channel], bias[channel + 8]);
  const auto left = ptx::matrix_descriptor_128b(weights, 0, 1024);
  implicit::Stage<STAGES> stage;
  int phase = 0;
  for (int j = 0; j < warpgroup; j++) stage.next();
  ptx::mbarrier_wait(&barriers.weights, 0);
  for (int i = blockIdx.x + warpgroup * gridDim.x; i < count; i += WARPGROUPS * gridDim.x, phase ^= 1) {
    const int n = i / tiles, top = (i - n * tiles) * rows, here = min(rows, p.H - top);
    if (sends) {
      ptx::bulk_wait_read<0>();  // the previous contents have been read
      if (p.residual) {
        ptx::grid_wait();
        ptx::mbarrier_arrive_expect_tx(barriers.residual + warpgroup, here * p.W * LINE);
        for (int j = 0; j < here; j++)
          ptx::tensor_load(out + j * pitch * LINE, maps.residual, 0, (n * p.H + top + j) * p.W,
                           barriers.residual + warpgroup);
      }
      ptx::mbarrier_arrive(barriers.free + warpgroup);
    }
    __syncwarp();
    float d[GROUPS][4];
    const auto right = ptx::matrix_descriptor_128b_lines(pixels + stage.index * STAGE_BYTES, 0, 1024);
    ptx::mbarrier_wait(barriers.full + stage.index, stage.parity);
    ptx::wgmma_fence();
#pragma unroll
    for (int r = 0; r < 3; r++)
#pragma unroll
      for (int s = 0; s < 3; s++)
#pragma unroll
        for (int k = 0; k < CHANNELS / 16; k++)
          ptx::wgmma_m64n120k16(d, left + ((3 * r + s) * WEIGHT_BYTES >> 4) + 2 * k,
                                right + ((r * pitch + s) * LINE >> 4) + 2 * k, r + s + k > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d);
    if (lane == 0) ptx::mbarrier_arrive(barriers.empty + stage.index);
    for (int j = 0; j < WARPGROUPS; j++) stage.next();
    ptx::mbarrier_wait(barriers.free + warpgroup, phase);
    if (p.residual) ptx::mbarrier_wait(barriers.residual + warpgroup, phase);
    finish(p, d, two, out);
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(barriers.written + warpgroup);
    if (sends) {
      ptx::mbarrier_wait(barriers.written + warpgroup, phase);
      for (int j = 0; j < here; j++) ptx::tensor_store(maps.y, 0, (n * p.H + top + j) * p.W, out + j * pitch * LINE);
      ptx::bulk_commit();
    }
    __syncwarp();
  }
  if (sends) ptx::bulk_wait<0>();
}

// Processes a block's tiles. `memory` has weights, stages and results; it is aligned to 1024 bytes.
__device__ __forceinline__ void convolve(const Problem& p, const Maps& maps, const float* bias, char* memory,
                                         Barriers& barriers) {
  char *const pixels = memory + TAPS * WEIGHT_BYTES, *const out = pixels + STAGES * STAGE_BYTES;
  const int count = p.N * p.tiles(), warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == WARPGROUPS * 128) {
    ptx::mbarrier_init(&barriers.weights, 1);
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(barriers.full + i, 1);
      ptx::mbarrier_init(barriers.empty + i, 4);  // warps
    }
    for (int i = 0; i < WARPGROUPS; i++) {
      ptx::mbarrier_init(barriers.free + i, 1);
      ptx::mbarrier_init(barriers.residual + i, 1);
      ptx::mbarrier_init(barriers.written + i, 4);
    }
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive_expect_tx(&barriers.weights, TAPS * WEIGHT_BYTES);
    for (int i = 0; i < TAPS; i++)
      ptx::tensor_load(memory + i * WEIGHT_BYTES, maps.w, i * CHANNELS, 0, &barriers.weights);
  }
  // Pixels beyond the last one, and residuals beside an image, are read but not used.
  const int first = (p.rows() + 2) * p.pitch() * (LINE / 16), left = STAGE_BYTES / 16 - first;
  for (int i = threadIdx.x; i < STAGES * left; i += THREADS)
    reinterpret_cast<uint4*>(pixels + i / left * STAGE_BYTES)[first + i % left] = make_uint4(0, 0, 0, 0);
  for (int i = threadIdx.x; i < WARPGROUPS * OUT_BYTES / 16; i += THREADS)
    reinterpret_cast<uint4*>(out)[i] = make_uint4(0, 0, 0, 0);
  ptx::fence_proxy_async();
  __syncthreads();  // the mbarriers are initialised, and those zeros are written
  ptx::grid_launch_dependents();
  if (warpgroup >= WARPGROUPS) {
    if (threadIdx.x % 32 == 0) produce(p, maps, pixels, barriers, count);
  } else {
    consume(p, maps, bias, memory, pixels, out + warpgroup * OUT_BYTES, barriers, count, warpgroup);
  }
}

}  // namespace implicit_rows

#define IMPLICIT_ROWS_KERNEL(name)                                                                         \
  IMPLICIT_GLOBAL __launch_bounds__(implicit_rows::THREADS, 1)                                             \
      name(const __grid_constant__ ptx::TensorMap x, const __grid_constant__ ptx::TensorMap w,             \
           const __grid_constant__ ptx::TensorMap residual, const __grid_constant__ ptx::TensorMap y,      \
           const float* bias, int N, int H, int W, int relu, int adds) {                                   \
    extern __shared__ __align__(1024) char memory[];                                                       \
    __shared__ implicit_rows::Barriers barriers;                                                           \
    implicit_rows::convolve({N, H, W, relu != 0, adds != 0}, {x, w, residual, y}, bias, memory, barriers); \
  }
#endif
