// conv2d_padded/v4_rows: 64 channels in and out, where pixels come once for all nine places in the filter.
//
// Idea      With 64 output channels, windows by windows, a block takes 24 KB from L2 for 256 clocks of products, and L2
//           gives it 56 bytes a clock: conv2d_padded/v3_wgmma runs at a third of the tensor cores' rate there. So rows
//           of pixels come once, with zeros around them, and a place in the filter is a shift of the same matrix: its
//           descriptor starts some lines further. Pixels are columns of the product, 120 of them, and channels rows:
//           both operands then come from shared memory in time. All weights stay there. mini_dnn/implicit_rows.cuh is
//           all of it.
// Layout    as conv2d_padded/v3_wgmma. In shared memory lines of 128 bytes, a pixel or an output channel's 64 weights
//           at a place, with 128-byte swizzle.
// Mapping   a block a multiprocessor; a warp brings tiles of 120 / (W + 2) rows, two warpgroups take them in turn.
// Roofline  ResNet-18, 64 images: 14.8 GFLOP a layer; 112 of 120 columns are wanted: 0.020 ms at 800 TFLOP/s. From
//           L2 29 KB a tile, for which its products leave 2,160 clocks. 52 MB of x and y, 0.012 ms at 4.3 TB/s.
// Gain      over conv2d_padded/v3_wgmma: 1.8 with 64 images.
// Limits    sm_90a, halves, layout nhwc, C = K = 64, 3 x 3, stride 1, padding 1, W at most 118.
// Hazards   as conv2d_padded/v3_wgmma. A row that is not in the image is asked for at row -1, where all is zero, as the
//           row in memory is one of the next image. Four warps turn their channels into lines that one thread sends:
//           an mbarrier says that all have written, and another one that the lines may be written again.
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
