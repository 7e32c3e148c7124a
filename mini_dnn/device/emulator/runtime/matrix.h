// A matrix that a product reads from shared memory: 16 k of rows of a or columns of b, which are called rows here.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace emulator {

constexpr size_t CHUNK = 16;  // bytes: eight contiguous elements

struct Matrix {
  const char* start;
  size_t leading, stride;  // bytes; mini_dnn/ptx_warpgroup.cuh defines them
  bool swizzled, transposed;
  unsigned first, rows;  // of the matrix at `start`: those that the product reads

  // The place of eight elements: eight k of a row, of which k is the first; or, transposed, eight rows of a k.
  const char* chunk(unsigned row, unsigned k) const {
    row += first;
    const size_t offset = transposed
                              ? row % 64 * 2 + row / 64 * leading + k % 8 * 128 + k / 8 * stride
                              : row % 8 * (swizzled ? 128 : 16) + row / 8 * stride + k / 8 * (swizzled ? 16 : leading);
    const auto address = reinterpret_cast<uintptr_t>(start) + offset;
    return reinterpret_cast<const char*>(swizzled ? swizzle(address) : address);
  }

  template <class Visit>
  void each_chunk(Visit visit) const {
    for (unsigned row = 0; row < rows; row += transposed ? 8 : 1)
      for (unsigned k = 0; k < 16; k += transposed ? 1 : 8) visit(chunk(row, k));
  }

  // The 16-byte part c of row r, of 128 bytes, is at c ^ r % 8: address bits 7 to 9 change bits 4 to 6.
  static uintptr_t swizzle(uintptr_t address) { return address ^ (address >> 3 & 0x70); }
};

}  // namespace emulator
