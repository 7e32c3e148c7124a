// conv2d_padded/v3_wgmma: the copy engine loads the pixels of windows, and warpgroups multiply them.
//
// Idea      A convolution is a product of windows and weights, and the windows need not be stored. With a tensor map in
//           im2col mode, the copy engine moves over windows, along a row, down an image, and on to the next image. From
//           each window it loads the pixel at one position in the filter. A tile is therefore always full of windows,
//           and padding, stride and image borders need no instructions of a thread. One warp starts the copies,
//           warpgroups multiply the tiles that have arrived, and bias, residual and ReLU are applied to the sums. If a
//           layer has too few tiles for all multiprocessors, the blocks of a cluster share the positions in the filter,
//           and add each other's sums through their shared memory. mini_dnn/implicit.cuh has all of this.
// Layout    x (N,H,W,C), w (K,R,R,C), residual and y (N,P,Q,K) halves, bias (K) fp32, C order; sums in fp32.
// Mapping   a block -> a tile of ROWS windows by COLUMNS channels, or tile after tile; a warpgroup -> 64 windows; a
//           cluster of SPLIT blocks -> one tile. A step is 64 channels at one position in the filter.
// Roofline  ResNet-18, 64 images: 14.8 GFLOP per layer, 0.025 ms at 600 TFLOP/s; x and y are 52, 26, 13 and 6.4 MB, at
//           most 0.012 ms at 4.3 TB/s. A block loads (ROWS + COLUMNS) 128 bytes per step from L2. For a tile of 128 x
//           64, the products of a step take 256 clocks, so L2 would have to deliver 96 bytes per clock. It delivers 55,
//           so layers of 64 channels are bound by L2.
// Gain      over conv2d_padded/v2_wmma: a factor of 4 and more, because products run while the next pixels are loaded,
//           and no thread computes positions.
// Limits    sm_90a, halves, layout nhwc; C and K are multiples of 64, the stride is at most 8 and R at most 127, which
//           are the limits of a tensor map.
// Hazards   A stage is filled again when every warp has read it. The residual is loaded to the memory from which sums
//           are stored, so it may be requested only after the previous tile has been stored; y may be the same array.
//           Weights and bias are read before the previous kernel has ended, so it must not write them. A block of a
//           cluster must not send sums before the others have started, nor exit while others send.
// Source    PTX ISA, "Tensors: Im2col mode"; CUDA driver API, cuTensorMapEncodeIm2col; CUTLASS, "Implicit GEMM".
#include <mini_dnn/implicit.cuh>

using Tile = implicit::Tile<TILE_ROWS, TILE_COLUMNS, TILE_STAGES, TILE_SPLIT>;

extern "C" __global__ void __launch_bounds__(Tile::THREADS, BLOCKS)
    convolve(const __grid_constant__ ptx::TensorMap x, const __grid_constant__ ptx::TensorMap more,
             const __grid_constant__ ptx::TensorMap w, const __grid_constant__ ptx::TensorMap residual_map,
             const __grid_constant__ ptx::TensorMap y_map, const unsigned* residual, unsigned* y, const float* bias,
             int windows, int K, int P, int Q, int C, int R, int stride, int padding, int more_C, int more_stride,
             int relu, int adds) {
  extern __shared__ __align__(1024) char memory[];
  const implicit::Problem problem{windows, K, P, Q, C, R, stride, padding, more_C, more_stride, relu != 0, adds != 0};
  implicit::convolve<Tile>(problem, {x, more, w, residual_map, y_map, residual, y, bias}, memory);
}
