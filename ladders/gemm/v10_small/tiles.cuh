// Types, and the tiles of c with the parts of k that blocks share.
#pragma once
#include <mini_dnn/lines.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

#include "../v8_final/stage.cuh"

struct Tiles {
  int rows, columns;  // of tiles; an `entry` here is a part of k of an entry of the batch
  int steps;          // of k
  // BAND rows are one band; in it, tiles follow each other column by column.
  __device__ __forceinline__ void find(int i, int& row, int& column, int& entry) const {
    entry = i / (rows * columns);
    i -= entry * rows * columns;
    const int first = i / (BAND * columns) * BAND, height = min(BAND, rows - first), in_band = i - first * columns;
    row = (first + in_band % height) * ROWS;
    column = in_band / height * COLUMNS;
  }
  // The steps of tile i.
  __device__ __forceinline__ void range(int i, int& first, int& last) const {
    const int part = i / (rows * columns) % PARTS;
    first = steps * part / PARTS, last = steps * (part + 1) / PARTS;
  }
};
