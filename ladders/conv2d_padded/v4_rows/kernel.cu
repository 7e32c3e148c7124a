// conv2d_padded/v4_rows: 64 channels in and out, with pixels that are loaded once for all nine positions in the filter.
//
// Idea      conv2d_padded/v3_wgmma loads 24 KB from L2 for 256 clocks of products if there are 64 output channels. L2
//           delivers 55 bytes per clock, so the tensor cores reach a third of their rate. Here rows of pixels are
//           loaded once, with zeros around them. A position in the filter is a shift of the same matrix: its descriptor
//           starts some lines later. A product has 120 pixels as columns and the channels as rows, because both
//           operands then arrive from shared memory in time. All weights stay there. mini_dnn/implicit_rows.cuh has all
//           of this.
// Layout    as conv2d_padded/v3_wgmma. Shared memory has lines of 128 bytes, a pixel or the 64 weights of an output
//           channel at one position, with 128-byte swizzle.
// Mapping   a block per multiprocessor; a warp loads tiles of 120 / (W + 2) rows, which two warpgroups process in turn.
// Roofline  ResNet-18, 64 images: 14.8 GFLOP per layer take 0.020 ms at 800 TFLOP/s, because 112 of 120 columns are
//           used. A tile loads 29 KB from L2, and its products take 2,160 clocks. x and y are 52 MB, 0.012 ms at 4.3
//           TB/s.
// Gain      over conv2d_padded/v3_wgmma: a factor of 1.25 with 64 images, from 0.025 to 0.020 ms.
// Limits    sm_90a, halves, layout nhwc, C = K = 64, 3 x 3, stride 1, padding 1, W at most 78: a stage has room for
//           three such rows and the zeros beside them.
// Hazards   as conv2d_padded/v3_wgmma. A row outside the image is always requested as row -1, for which the copy engine
//           writes zeros. The row after the last one would belong to the next image. Four warps transpose their
//           channels into lines that one thread stores: one mbarrier signals that all have written, and another one
//           that the lines may be written again.
// Source    PTX ISA, "Matrix Descriptor Format" (base offset), "Asynchronous Warpgroup Level Matrix Instructions".
#include <mini_dnn/implicit_rows.cuh>

extern "C" __global__ void __launch_bounds__(implicit_rows::THREADS, 1)
    convolve(const __grid_constant__ ptx::TensorMap x, const __grid_constant__ ptx::TensorMap w,
             const __grid_constant__ ptx::TensorMap residual, const __grid_constant__ ptx::TensorMap y,
             const float* bias, int N, int H, int W, int relu, int adds) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ implicit_rows::Barriers barriers;
  implicit_rows::convolve({N, H, W, relu != 0, adds != 0}, {x, w, residual, y}, bias, memory, barriers);
}
