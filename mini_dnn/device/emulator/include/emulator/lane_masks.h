// The lanes of a warp as bits of a mask, and their ranks in it.
#pragma once
#include "warp.h"

namespace emulator {

// The lanes of this thread's warp that form a tile of `size` with it.
inline unsigned tile_mask(unsigned size) {
  return (size == 32 ? EMULATOR_FULL_WARP : (1u << size) - 1) << (lane() & ~(size - 1));
}
// The lanes of `mask` before this one, and the i-th lane of `mask`.
inline unsigned rank_in(unsigned mask) { return __builtin_popcount(mask & ((1u << lane()) - 1)); }
inline unsigned lane_at(unsigned mask, unsigned i) {
  while (i--) mask &= mask - 1;
  return mask ? __builtin_ctz(mask) : 32;
}
// Converts bits of lanes to bits of ranks.
inline unsigned packed(unsigned bits, unsigned mask) {
  unsigned result = 0;
  for (unsigned i = 0; mask; mask &= mask - 1, i++) result |= (bits >> __builtin_ctz(mask) & 1) << i;
  return result;
}

}  // namespace emulator
