// What a warpgroup waits for before it starts products. It tests early, because the result of a test takes a while.
#pragma once
#include <mini_dnn/ptx_test_wait.cuh>

#include "../v9_final/block.cuh"

// Where a block of keys and values is: a stage, and the descriptors of its products. They move on together, because a
// descriptor that is computed anew takes longer, and products wait for it.
struct Place : Ring<STAGES> {
  unsigned long long keys, values;
  __device__ __forceinline__ Place(unsigned long long keys, unsigned long long values) : keys(keys), values(values) {}
  __device__ __forceinline__ void next() {
    constexpr long long step = 2 * KEYS_BYTES >> 4;
    Ring::next();
    const long long by = stage == 0 ? -(STAGES - 1) * step : step;
    keys += by, values += by;
  }
};

// Warpgroups start products in turn.
struct Turns {
  ptx::mbarrier* const turns;
  const int group;
  int parity = 0;
  bool granted = false;  // the next turn

  __device__ __forceinline__ void ask() { granted = ptx::mbarrier_test_wait(turns + group, parity ^ (group == 0)); }
  __device__ __forceinline__ void wait() {
    if (!granted) ptx::mbarrier_wait(turns + group, parity ^ (group == 0));
    granted = false;
  }
  __device__ __forceinline__ void pass() {
    __syncwarp();  // all lanes have had their turn
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(turns + (group + 1 < GROUP_COUNT ? group + 1 : 0));
    parity ^= 1;
  }
};
