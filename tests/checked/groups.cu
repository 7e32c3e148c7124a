// Cooperative groups: correct uses, and uses in which some threads of a group are missing.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__device__ float sum_by_memory(cg::thread_group group, float* space, float value) {
  const int rank = group.thread_rank();
  for (int i = group.size() / 2; i > 0; i /= 2) {
    space[rank] = value;
    group.sync();
    if (rank < i) value += space[rank + i];
    group.sync();
  }
  return value;
}

// launch: 2, 64
extern "C" __global__ void tiles_and_their_block(const float* x, float* y, float* part, int* flags) {
  __shared__ float sums[2];
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<32>(block);
  const int i = cg::this_grid().thread_rank();
  const float sum = cg::reduce(tile, x[i], cg::plus<float>());
  if (tile.thread_rank() == 0) sums[tile.meta_group_rank()] = sum;
  block.sync();
  y[i] = sums[0] + sums[1];
}

// launch: 1, 64
extern "C" __global__ void groups_of_any_kind(const float* x, float* y, float* part, int* flags) {
  __shared__ float space[64];
  const auto block = cg::this_thread_block();
  y[threadIdx.x] = sum_by_memory(block, space, x[threadIdx.x]);
  block.sync();
  const cg::thread_group eight = cg::tiled_partition(block, 8);
  y[64 + threadIdx.x] = sum_by_memory(eight, space + threadIdx.x / 8 * 8, x[threadIdx.x]);
}

// launch: 1, 64
extern "C" __global__ void tiles_that_part(const float* x, float* y, float* part, int* flags) {
  const auto tile = cg::tiled_partition<8>(cg::tiled_partition<32>(cg::this_thread_block()));
  float value = x[threadIdx.x];
  if (tile.meta_group_rank() % 2) {
    for (int d = 1; d < 8; d *= 2) value += tile.shfl_xor(value, d);
  } else {
    tile.sync();
    value = tile.shfl(value, 3);
  }
  y[threadIdx.x] = value;
}

// launch: 1, 64
extern "C" __global__ void one_atomic_for_all(const float* x, float* y, float* part, int* flags) {
  if (threadIdx.x % 3 == 0) {
    const auto group = cg::coalesced_threads();
    int first = 0;
    if (group.thread_rank() == 0) first = atomicAdd(&flags[0], (int)group.size());
    y[group.shfl(first, 0) + group.thread_rank()] = x[threadIdx.x];
  }
}

// launch: 1, 50
extern "C" __global__ void exchange_within_tiles(const float* x, float* y, float* part, int* flags) {
  __shared__ float space[64];
  const auto tile = cg::tiled_partition<2>(cg::this_thread_block());
  space[threadIdx.x] = x[threadIdx.x];
  tile.sync();
  y[threadIdx.x] = space[threadIdx.x ^ 1];
}

// launch: 1, 64
extern "C" __global__ void sync_in_a_branch(const float* x, float* y, float* part, int* flags) {
  const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  if (tile.thread_rank() < 16) tile.sync();  // expect: warp-mask
  cg::this_thread_block().sync();
  y[threadIdx.x] = x[threadIdx.x];
}

// launch: 1, 64
extern "C" __global__ void sum_in_a_branch(const float* x, float* y, float* part, int* flags) {
  const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  float value = x[threadIdx.x];
  if (threadIdx.x < 40) value = cg::reduce(tile, value, cg::plus<float>());  // expect: warp-mask
  y[threadIdx.x] = value;
}

// launch: 1, 64
extern "C" __global__ void shuffle_after_return(const float* x, float* y, float* part, int* flags) {
  const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  if (threadIdx.x >= 50) return;
  float value = x[threadIdx.x];
  for (int d = 16; d > 0; d /= 2) value += tile.shfl_down(value, d);  // expect: warp-mask
  y[threadIdx.x] = value;
}

// launch: 1, 64
extern "C" __global__ void a_tile_that_is_too_small(const float* x, float* y, float* part, int* flags) {
  __shared__ float space[64];
  const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  space[threadIdx.x] = x[threadIdx.x];  // expect: race
  tile.sync();
  y[threadIdx.x] = space[threadIdx.x ^ 16];
}

// launch: 1, 64
extern "C" __global__ void a_tile_for_its_block(const float* x, float* y, float* part, int* flags) {
  __shared__ float sums[2];
  const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  const float sum = cg::reduce(tile, x[threadIdx.x], cg::greater<float>());
  if (tile.thread_rank() == 0) sums[tile.meta_group_rank()] = sum;  // expect: race
  tile.sync();
  y[threadIdx.x] = max(sums[0], sums[1]);
}

// launch: 1, 64
extern "C" __global__ void block_sync_in_a_branch(const float* x, float* y, float* part, int* flags) {
  const auto block = cg::this_thread_block();
  if (x[threadIdx.x] < 10.0f)
    cg::sync(block);  // expect: divergence
  else
    y[threadIdx.x] = x[threadIdx.x];
  block.sync();
}

// launch: 1, 64
extern "C" __global__ void no_sync_at_all(const float* x, float* y, float* part, int* flags) {
  __shared__ float space[64];
  const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  space[threadIdx.x] = x[threadIdx.x];
  const float other = space[threadIdx.x ^ 1];  // expect: race
  tile.sync();
  y[threadIdx.x] = other;
}

// launch: 1, 64
extern "C" __global__ void groups_of_two_sizes(const float* x, float* y, float* part, int* flags) {
  const cg::thread_block block = cg::this_thread_block();
  float value = x[threadIdx.x];
  if (threadIdx.x % 32 < 8) {
    value += cg::tiled_partition<16>(block).shfl_xor(value, 8);  // expect: warp-mask
  } else {
    value += cg::tiled_partition<8>(block).shfl_xor(value, 4);
  }
  y[threadIdx.x] = value;
}
