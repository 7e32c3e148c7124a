// What one instruction of a warp moves: its active lanes' addresses, in 32-byte sectors and in shared memory's banks.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

namespace emulator {

constexpr unsigned SECTOR = 32, LINE = 128, BANKS = 32, WORD = 4;

// The addresses of active lanes, ascending.
struct Lanes {
  uint64_t at[32];
  unsigned count = 0, bytes;

  Lanes(const uint64_t* addresses, uint32_t mask, unsigned bytes) : bytes(bytes) {
    bool sorted = true;
    for (; mask; mask &= mask - 1) {
      at[count] = addresses[std::countr_zero(mask)];
      sorted &= !count || at[count - 1] <= at[count];
      count++;
    }
    if (!sorted) std::sort(at, at + count);
  }

  // Calls visit(piece) for each distinct piece of so many bytes, a power of two.
  template <class Visit>
  void each_piece(unsigned size, Visit visit) const {
    uint64_t next = 0;
    for (unsigned i = 0; i < count; i++) {
      const uint64_t last = (at[i] + bytes - 1) / size;
      for (uint64_t piece = std::max(next, at[i] / size); piece <= last; piece++) visit(piece);
      next = last + 1;
    }
  }
  unsigned pieces(unsigned size) const {
    unsigned found = 0;
    each_piece(size, [&](uint64_t) { found++; });
    return found;
  }
  // Accesses are aligned to their size, so two of them are the same bytes or have none in common.
  unsigned distinct_bytes() const {
    unsigned distinct = 0;
    for (unsigned i = 0; i < count; i++) distinct += !i || at[i] != at[i - 1];
    return distinct * bytes;
  }
};

// Whether all neighbours, lanes i and i ^ distance, want the same.
inline bool are_pairs(const uint64_t* addresses, uint32_t mask, unsigned distance) {
  for (uint32_t left = mask; left; left &= left - 1) {
    const unsigned i = std::countr_zero(left), other = i ^ distance;
    if (mask >> other & 1 && addresses[i] != addresses[other]) return false;
  }
  return true;
}

// Cycles that shared memory needs: a warp's lanes go in groups of so many that 128 bytes hold all that they ask for; in
// each group one bank gives one word a cycle, to all lanes that want it. Where lanes come in pairs that want the same,
// a group has twice as many.
inline unsigned shared_groups(const uint64_t* addresses, uint32_t mask, unsigned bytes) {
  const unsigned groups = bytes <= WORD ? 1 : bytes <= 8 ? 2 : 4;
  const bool pairs = groups > 1 && (are_pairs(addresses, mask, 1) || are_pairs(addresses, mask, 2));
  return pairs ? groups / 2 : groups;
}

inline unsigned group_wavefronts(const uint64_t* addresses, uint32_t mask, unsigned bytes) {
  uint64_t words[32 * 4];
  unsigned count = 0, most = 0, used[BANKS] = {};
  for (; mask; mask &= mask - 1) {
    const uint64_t at = addresses[std::countr_zero(mask)];
    for (uint64_t word = at / WORD; word <= (at + bytes - 1) / WORD; word++) words[count++] = word;
  }
  std::sort(words, words + count);
  for (unsigned i = 0; i < count; i++)
    if (!i || words[i] != words[i - 1]) most = std::max(most, ++used[words[i] % BANKS]);
  return most;
}

struct Wavefronts {
  unsigned all = 0, ideal = 0;
};
inline Wavefronts shared_wavefronts(const uint64_t* addresses, uint32_t mask, unsigned bytes) {
  const unsigned groups = shared_groups(addresses, mask, bytes), lanes = 32 / groups;
  Wavefronts found;
  for (unsigned i = 0; i < groups; i++) {
    const uint32_t part = groups == 1 ? mask : mask & ((1u << lanes) - 1) << i * lanes;
    if (!part) continue;
    found.all += group_wavefronts(addresses, part, bytes);
    found.ideal++;
  }
  return found;
}

}  // namespace emulator
