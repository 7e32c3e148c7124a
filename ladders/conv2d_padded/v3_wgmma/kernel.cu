#include <mini_dnn/implicit.cuh>

using Tile = implicit::Tile<TILE_ROWS, TILE_COLUMNS, TILE_STAGES, TILE_SPLIT>;

extern "C" __global__ void __launch_bounds__(Tile::THREADS, BLOCKS)
    convolve(const __grid_constant__ ptx::TensorMap x, const __grid_constant__ ptx::TensorMap w,
             const __grid_constant__ ptx::TensorMap residual_map, const __grid_constant__ ptx::TensorMap y_map,
             const unsigned* residual, unsigned* y, const float* bias, int windows, int K, int P, int Q, int C, int R,
             int stride, int padding) {
  extern __shared__ __align__(1024) char memory[];
  const implicit::Problem problem{windows, K, P, Q, C, R, stride, padding, 0, 0, RELU, RESIDUAL};
  implicit::convolve<Tile>(problem, {x, x, w, residual_map, y_map, residual, y, bias}, memory);
}
