// Part of kernel.cu: products of a matrix and a vector. `In`, `Out` and `Vector` are types of operands and results.
#include "../v8_final/vector.cuh"

constexpr int PIECE = 16 / sizeof(In);  // elements that one instruction loads

struct alignas(16) Piece {
  In part[PIECE];
};

#include "columns.cuh"
#include "rows.cuh"
