// Part of kernel.cu: the steps of tiles.
#include "../v11_ahead/places.cuh"

// The odd rows (entry 1) begin 8 terms before the first k, so that their boxes of a begin at multiples of 32 bytes.
// Beyond its operands, the copy engine writes zeros.
__device__ __forceinline__ int shift_of(int entry) { return HALVES ? entry * 8 : 0; }
__device__ __forceinline__ int steps(int k, int entry) { return (k + shift_of(entry) + TILE_K - 1) / TILE_K; }
__device__ __forceinline__ int steps_of(const Places& places, int tile, int rank, int k) {
  int row, column, entry;
  places.find(tile, rank, row, column, entry);
  return steps(k, entry);
}

// Moves on by the steps of a tile that the other warpgroup computes.
__device__ __forceinline__ void skip(Stage& stage, int steps) {
  const int index = stage.index + steps;
  stage.parity ^= index / STAGES & 1;
  stage.index = index % STAGES;
}
