// Part of kernel.cu: products of a warpgroup, and the store of its sums. Half of a warpgroup's sums are 64 rows
// of a tall tile, or 128 columns of a flat one.
#include "../v11_ahead/half.cuh"

// d (64,8 groups) = 64 rows of a times columns of b, from boxes of a stage, for the j-th 16 of k; or += with `add`.
template <class Tile, int groups>
__device__ __forceinline__ void multiply_16(float (&d)[groups][4], const char* stage, int a_box, int b_box, int j,
                                            bool add) {
  constexpr int a_next = A_TURNED ? 2048 : 32, b_next = B_TURNED ? 32 : 2048;  // bytes to the next 16 of k
  const char *const a_tile = stage + a_box * BOX_BYTES, *const b_tile = stage + Tile::A_BYTES + b_box * BOX_BYTES;
  const auto left = ptx::matrix_descriptor_128b(a_tile, BOX_BYTES, 1024) + j * (a_next >> 4);
  const auto right = ptx::matrix_descriptor_128b(b_tile, BOX_BYTES, 1024) + j * (b_next >> 4);
  ptx::wgmma_m64k16<groups * 8, Operand, A_TURNED, !B_TURNED>(d, left, right, add);
}

// All sums of a warpgroup.
template <class Tile>
__device__ __forceinline__ void multiply(float (&d)[Tile::GROUPS][4], const char* stage, int warpgroup, bool add) {
#pragma unroll
  for (int j = 0; j < TILE_K / 16; j++) {
    if constexpr (Tile::TALL) {
      multiply_16<Tile>(half_of<0>(d), stage, 2 * warpgroup, 0, j, add || j > 0);
      multiply_16<Tile>(half_of<1>(d), stage, 2 * warpgroup + 1, 0, j, add || j > 0);
    } else {
      multiply_16<Tile>(d, stage, warpgroup, 0, j, add || j > 0);
    }
  }
}

// Adds the products of the last steps to half of the sums.
template <class Tile, int half>
__device__ __forceinline__ void multiply_last(float (&d)[Tile::GROUPS][4], const char* memory, Stage stage,
                                              int warpgroup) {
  const int a_box = Tile::TALL ? 2 * warpgroup + half : warpgroup;
#pragma unroll
  for (int i = 0; i < TAIL; i++) {
    const char* const at = memory + (stage.index + i) % STAGES * STAGE_BYTES;
#pragma unroll
    for (int j = 0; j < TILE_K / 16; j++)
      multiply_16<Tile>(half_of<half>(d), at, a_box, Tile::TALL ? 0 : 2 * half, j, true);
  }
  ptx::wgmma_commit();
}

// Stores half of the sums: 16 rows of a warp, 64 columns at a time, through its part of shared memory.
template <int half, int groups>
__device__ __forceinline__ void store(const float (&d)[groups][4], const ptx::TensorMap& c, float alpha, char* own,
                                      int row, int column, int entry) {
  constexpr int parts = groups / 8;
#pragma unroll
  for (int i = 0; i < parts; i++) {
    constexpr int before = half * parts;
    char* const rows = own + (before + i) % BUFFERS * PART_BYTES;
    if (threadIdx.x % 32 == 0) {  // copies have read what was there before
      if (before + i == 0) ptx::bulk_wait_read<0>();
      if (before + i >= BUFFERS) ptx::bulk_wait_read<BUFFERS - 1>();
    }
    __syncwarp();
    sums::stage<Out>(d, 8 * i, alpha, rows);
    ptx::fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      ptx::tensor_store(c, column + 64 * i, row, entry, rows);
      ptx::bulk_commit();
    }
  }
}
