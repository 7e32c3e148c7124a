// What one copy moves between global and shared memory: contiguous bytes, or a box of a tensor map.
#pragma once
#include <algorithm>
#include <cstdint>

#include "../include/emulator/async_interface.h"
#include "matrix.h"

namespace emulator {

// Bytes that are contiguous on both sides. Those before `first` and from `last` on are not in global memory: they are
// zero when loaded, and are not stored.
struct Piece {
  char *shared, *global;
  unsigned bytes, first, last;
};

struct Box {
  TensorMap map;
  BoxPlace at;

  unsigned bytes() const { return map.box[0] * map.box[1] * map.box[2] * map.itemsize; }

  template <class Visit>
  void each_piece(char* shared, Visit visit) const {
    if (map.window) return each_pixel(shared, visit);
    for (unsigned z = 0; z < map.box[2]; z++)
      for (unsigned y = 0; y < map.box[1]; y++) {
        const int64_t row = int64_t(at.y) + y, plane = int64_t(at.z) + z;
        const bool inside = row >= 0 && row < map.shape[1] && plane >= 0 && plane < map.shape[2];
        each_of_row(map.address + row * map.pitch[0] + plane * map.pitch[1], inside, shared, visit);
      }
  }

  // box[1] windows, one after the other along a row, down an image, and over images.
  template <class Visit>
  void each_pixel(char* shared, Visit visit) const {
    const int first = -int(map.padding), beyond = 1 - int(map.window) + int(map.padding);
    int column = at.y, row = at.z, image = at.n;
    for (unsigned i = 0; i < map.box[1]; i++) {
      const int64_t w = int64_t(column) + at.right, h = int64_t(row) + at.down;
      const bool inside =
          w >= 0 && w < map.shape[1] && h >= 0 && h < map.shape[2] && image >= 0 && image < int64_t(map.images);
      each_of_row(map.address + w * map.pitch[0] + h * map.pitch[1] + image * map.image_pitch, inside, shared, visit);
      if ((column += map.stride) < int(map.shape[1]) + beyond) continue;
      column = first;
      if ((row += map.stride) < int(map.shape[2]) + beyond) continue;
      row = first, image++;
    }
  }

  // The elements of a row, or channels of a pixel, from x on. `shared` is advanced past them.
  template <class Visit>
  void each_of_row(uint64_t start, bool inside, char*& shared, Visit visit) const {
    for (unsigned x = 0; x < map.box[0]; x += CHUNK / map.itemsize, shared += CHUNK) {
      const int64_t column = int64_t(at.x) + x, units = CHUNK / map.itemsize;
      const auto clip = [&](int64_t end) { return inside ? unsigned(std::clamp(end - column, int64_t(0), units)) : 0; };
      visit(Piece{swizzled(shared), reinterpret_cast<char*>(start + column * map.itemsize), CHUNK,
                  clip(0) * map.itemsize, clip(map.shape[0]) * map.itemsize});
    }
  }

  // The row of `swizzle` bytes, out of eight (four, two), determines the permutation: see Matrix::swizzle.
  char* swizzled(char* shared) const {
    const auto address = reinterpret_cast<uintptr_t>(shared);
    return reinterpret_cast<char*>(address ^ (address >> 3 & (map.swizzle ? map.swizzle - CHUNK : 0)));
  }
};

}  // namespace emulator
