// What one warp instruction moves: its active lanes' addresses, in 32-byte sectors and in shared memory's banks.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

namespace emulator {

constexpr unsigned SECTOR = 32, LINE = 128, BANKS = 32, WORD = 4, SETS = 4;

// The distinct addresses of active lanes, ascending. Accesses are aligned to their size, so two of them are either the
// same bytes or disjoint.
struct Lanes {
  uint64_t at[32];
  unsigned count = 0, bytes;
  bool dense;  // no byte between the first and the last is left out

  Lanes(const uint64_t* addresses, uint32_t mask, unsigned bytes) : bytes(bytes) {
    bool ascending = true;
    for (; mask; mask &= mask - 1) {
      const uint64_t address = addresses[std::countr_zero(mask)];
      if (count && address == at[count - 1]) continue;
      ascending &= !count || at[count - 1] < address;
      at[count++] = address;
    }
    if (!ascending) sort();
    dense = at[count - 1] - at[0] == uint64_t(count - 1) * bytes;
  }

  // Calls visit(piece) for each distinct piece of this many bytes, a power of two.
  template <class Visit>
  void each_piece(unsigned size, Visit visit) const {
    if (dense) {
      const uint64_t last = (at[count - 1] + bytes - 1) / size;
      for (uint64_t piece = at[0] / size; piece <= last; piece++) visit(piece);
      return;
    }
    uint64_t next = 0;
    for (unsigned i = 0; i < count; i++) {
      const uint64_t last = (at[i] + bytes - 1) / size;
      for (uint64_t piece = std::max(next, at[i] / size); piece <= last; piece++) visit(piece);
      next = last + 1;
    }
  }
  unsigned pieces(unsigned size) const {
    if (dense) return unsigned((at[count - 1] + bytes - 1) / size - at[0] / size + 1);
    unsigned found = 0;
    each_piece(size, [&](uint64_t) { found++; });
    return found;
  }
  unsigned distinct_bytes() const { return count * bytes; }

 private:
  // Most warps stay within some kilobytes: a bit is set for each place, and the bits are read in order.
  void sort() {
    constexpr unsigned PLACES = 1024;
    const auto [low, high] = std::minmax_element(at, at + count);
    const uint64_t first = *low, places = (*high - first) / bytes + 1;
    uint64_t odd = 0, set[PLACES / 64];
    for (unsigned i = 0; i < count; i++) odd |= at[i] - first;
    if (places > PLACES || !std::has_single_bit(bytes) || odd % bytes) {
      std::sort(at, at + count);
      count = unsigned(std::unique(at, at + count) - at);
      return;
    }
    const unsigned words = unsigned(places + 63) / 64;
    std::fill(set, set + words, 0);
    for (unsigned i = 0; i < count; i++)
      set[(at[i] - first) / bytes / 64] |= uint64_t(1) << (at[i] - first) / bytes % 64;
    count = 0;
    for (unsigned word = 0; word < words; word++)
      for (uint64_t left = set[word]; left; left &= left - 1)
        at[count++] = first + uint64_t(word * 64 + std::countr_zero(left)) * bytes;
  }
};

// Whether all neighbours, lanes i and i ^ distance, access the same bytes.
inline bool are_pairs(const uint64_t* addresses, uint32_t mask, unsigned distance) {
  for (uint32_t left = mask; left; left &= left - 1) {
    const unsigned i = std::countr_zero(left), other = i ^ distance;
    if (mask >> other & 1 && addresses[i] != addresses[other]) return false;
  }
  return true;
}

// Cycles that shared memory needs. The lanes of a warp form groups that access at most 128 bytes. In each group, a bank
// delivers one word per cycle to all lanes that need it. If pairs of lanes access the same bytes, groups are twice as
// large.
inline unsigned shared_groups(const uint64_t* addresses, uint32_t mask, unsigned bytes) {
  const unsigned groups = bytes <= WORD ? 1 : bytes <= 8 ? 2 : 4;
  const bool pairs = groups > 1 && (are_pairs(addresses, mask, 1) || are_pairs(addresses, mask, 2));
  return pairs ? groups / 2 : groups;
}

inline unsigned group_wavefronts(const Lanes& lanes) {
  if (lanes.dense && lanes.pieces(WORD) <= BANKS) return 1;
  uint8_t used[BANKS] = {}, most = 0;
  lanes.each_piece(WORD, [&](uint64_t word) { most = std::max(most, ++used[word % BANKS]); });
  return most;
}

// Cycles that the L1 cache needs to look up the lines of an instruction: each of its sets delivers one per cycle, and
// the last bits of a line's number select the set.
inline unsigned tag_wavefronts(const Lanes& lanes) {
  uint8_t used[SETS] = {}, most = 0;
  lanes.each_piece(LINE, [&](uint64_t line) { most = std::max(most, ++used[line % SETS]); });
  return most;
}

struct Wavefronts {
  unsigned all = 0, ideal = 0;
};
inline Wavefronts shared_wavefronts(const uint64_t* addresses, uint32_t mask, const Lanes& lanes) {
  const unsigned groups = shared_groups(addresses, mask, lanes.bytes), size = 32 / groups;
  if (groups == 1) return {group_wavefronts(lanes), 1};
  Wavefronts found;
  for (unsigned i = 0; i < groups; i++) {
    const uint32_t part = mask & ((1u << size) - 1) << i * size;
    if (!part) continue;
    found.all += group_wavefronts(Lanes(addresses, part, lanes.bytes));
    found.ideal++;
  }
  return found;
}

}  // namespace emulator
