// Cooperative groups: the result of each member and function for 64 threads.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

template <unsigned size>
__device__ void tile_of(cg::thread_block block, const int* x, int* out) {
  const cg::thread_block_tile<size> tile = cg::tiled_partition<size>(block);
  const int value = x[threadIdx.x];
  out[0] = tile.thread_rank();
  out[1] = tile.size() + tile.num_threads();
  out[2] = tile.meta_group_rank();
  out[3] = tile.meta_group_size();
  out[4] = tile.shfl(value, 3 % size);
  out[5] = tile.shfl_up(value, 1);
  out[6] = tile.shfl_down(value, 1);
  out[7] = size > 1 ? tile.shfl_xor(value, size / 2) : value;
  out[8] = tile.any(value % 7 == 0);
  out[9] = tile.all(value % 7 != 0);
  out[10] = tile.ballot(value % 3 == 0);
  out[11] = tile.match_any(value % 4);
  out[12] = cg::reduce(tile, value, cg::plus<int>());
  out[13] = cg::reduce(tile, value, cg::less<int>());
  out[14] = cg::reduce(tile, value, cg::greater<int>());
  out[15] = cg::reduce(tile, value, [](int a, int b) { return a ^ b; });
  tile.sync();
}

extern "C" __global__ void tiles(const int* x, int* out) {
  const cg::thread_block block = cg::this_thread_block();
  int* const mine = out + threadIdx.x * 16;
#if SIZE
  tile_of<SIZE>(block, x, mine);
#endif
}

extern "C" __global__ void coalesced(const int* x, int* out) {
  if (x[threadIdx.x] % 3) return;
  const cg::coalesced_group group = cg::coalesced_threads();
  int* const mine = out + threadIdx.x * 10;
  const int value = x[threadIdx.x];
  mine[0] = group.thread_rank();
  mine[1] = group.size();
  mine[2] = group.shfl(value, 1);
  mine[3] = group.shfl_up(value, 1);
  mine[4] = group.shfl_down(value, 2);
  mine[5] = group.any(value == 3);
  mine[6] = group.all(value < 1000);
  mine[7] = group.ballot(value % 2);
  mine[8] = cg::reduce(group, value, cg::plus<int>());
  mine[9] = group.match_any(value % 2);
  group.sync();
}

extern "C" __global__ void blocks(int* out) {
  const auto block = cg::this_thread_block();
  const auto grid = cg::this_grid();
  int* const mine = out + grid.thread_rank() * 8;
  mine[0] = block.thread_rank();
  mine[1] = block.size() + block.num_threads();
  mine[2] = block.group_index().x;
  mine[3] = block.thread_index().y;
  mine[4] = block.group_dim().x + block.dim_threads().y;
  mine[5] = grid.size() + grid.num_threads();
  const cg::thread_group four = cg::tiled_partition(block, 4);
  mine[6] = four.size();
  mine[7] = four.thread_rank();
  cg::sync(four);
  cg::sync(block);
}

extern "C" __global__ void float_sum(const float* x, float* y) {
  const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  y[threadIdx.x] = cg::reduce(tile, x[threadIdx.x], cg::plus<float>());
  float by_shuffles = x[threadIdx.x];
  for (int d = 16; d > 0; d /= 2) by_shuffles += tile.shfl_xor(by_shuffles, d);
  y[32 + threadIdx.x] = by_shuffles;
}
