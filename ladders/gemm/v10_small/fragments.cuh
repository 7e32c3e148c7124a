// Tiles of operands in shared memory, and the products of a warp with mma.sync.
#pragma once
#include "tiles.cuh"

namespace fragments {

// The position of element `at` of a line of a tile. The same part of eight elements of eight lines that follow each
// other is in eight different groups of four banks, as ldmatrix requires.
template <int length>
__device__ __forceinline__ int place(int line, int at) {
  constexpr int parts = length < 64 ? length / 8 : 8;
  return line * length + ((at / 8) ^ (line / (8 / parts) % parts)) * 8 + at % 8;
}

// Loads 16 x 16 elements from line `line0` and place `at0` on, as four matrices of 8 x 8. Matrix 1 follows matrix 0
// along the lines (`lines_first`) or within the line, and matrix 2 follows it in the other direction. With `turned`,
// each matrix is transposed.
template <int length, bool turned, bool lines_first>
__device__ __forceinline__ void matrices(unsigned (&d)[4], const lines::Bits* tile, int line0, int at0) {
  const int lane = threadIdx.x % 32, first = lane / 8 % 2 * 8, second = lane / 16 * 8;
  const int line = line0 + lane % 8 + (lines_first ? first : second), at = at0 + (lines_first ? second : first);
  if constexpr (turned)
    ptx::ldmatrix_trans(d, tile + place<length>(line, at));
  else
    ptx::ldmatrix(d, tile + place<length>(line, at));
}

// Adds the product of 16 x 16 and 16 x 8 elements.
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  if constexpr (Operand::is_half)
    ptx::mma_m16n8k16(d, a, b);
  else
    ptx::mma_m16n8k16_bf16(d, a, b);
}

}  // namespace fragments
