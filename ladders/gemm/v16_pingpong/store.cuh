// Part of kernel.cu: how a warpgroup stores its tile.
#include "../v11_ahead/stage_rows.cuh"

// A tile goes out in pieces, which pass through a few buffers. The pieces of the last tile of a block are staged where
// the stages were, as those are no longer needed.
struct Pieces {
  static constexpr int COUNT = PAIRS * (ROWS / PIECE);
  const ptx::TensorMap& c;
  char *stages, *buffers;
  Ring& ring;
  int player;
  float alpha;

  __device__ __forceinline__ char* staged(int i) const { return stages + (player % TEAM * COUNT + i) * (PIECE * 128); }

  // Waits until all warps of the warpgroup have staged something.
  __device__ __forceinline__ void meet(int parity) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(ring.staged + player);
    ptx::mbarrier_wait(ring.staged + player, parity);  // for all warps: none may arrive twice in a phase
  }

  // Starts the copy of the i-th piece.
  __device__ __forceinline__ void copy(int i, int row, int column, int entry, const char* from) const {
    ptx::tensor_store(c, column + player % TEAM * OWN_COLUMNS + 64 * (i % PAIRS), row + i / PAIRS * PIECE, entry, from);
    ptx::bulk_commit();
  }

  // `tiles` is the number of earlier tiles of this warpgroup.
  __device__ __forceinline__ void store(const float (&d)[PAIRS][GROUPS][4], int tiles, int row, int column, int entry,
                                        bool last) const {
    const bool first = threadIdx.x % 128 == 0;
    if (last) {
#pragma unroll
      for (int i = 0; i < COUNT; i++) stage_rows<PIECE / 8>(d[i % PAIRS], i / PAIRS * (PIECE / 8), alpha, staged(i));
      meet(tiles * COUNT % 2);
      for (int i = 0; first && i < COUNT; i++) copy(i, row, column, entry, staged(i));
      return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const int pieces = tiles * COUNT + i;
      char* const to = buffers + pieces % BUFFERS * (PIECE * 128);
      if (first) {
        ptx::bulk_wait_read<BUFFERS - 1>();  // an earlier copy has read this buffer
        ptx::mbarrier_arrive(ring.free + player);
      }
      __syncwarp();
      ptx::mbarrier_wait(ring.free + player, pieces % 2);
      stage_rows<PIECE / 8>(d[i % PAIRS], i / PAIRS * (PIECE / 8), alpha, to);
      meet(pieces % 2);
      if (first) copy(i, row, column, entry, to);
    }
  }
};
