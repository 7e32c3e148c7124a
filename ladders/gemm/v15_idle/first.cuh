// Part of kernel.cu: products of the first step of a tile, which may have fewer terms than others.

// All sums of a warpgroup, from `count` times 16 of k.
template <class Tile>
__device__ __forceinline__ void multiply_first(float (&d)[Tile::GROUPS][4], const char* stage, int warpgroup,
                                               int count) {
  auto multiply = [&](int j, bool add) {
    if constexpr (Tile::TALL) {
      multiply_16<Tile>(half_of<0>(d), stage, 2 * warpgroup, 0, j, add);
      multiply_16<Tile>(half_of<1>(d), stage, 2 * warpgroup + 1, 0, j, add);
    } else {
      multiply_16<Tile>(d, stage, warpgroup, 0, j, add);
    }
  };
  multiply(0, false);
#pragma unroll 1
  for (int j = 1; j < count; j++) {
    ptx::wgmma_fence();  // ptxas needs one wherever paths meet
    multiply(j, true);
  }
  ptx::wgmma_fence();
}
