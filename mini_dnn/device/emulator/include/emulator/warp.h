// Warp functions: each lane passes a record, and the last one to arrive computes all results.
#pragma once
#include "runtime_interface.h"

constexpr unsigned EMULATOR_FULL_WARP = 0xffffffffu;

inline void __syncwarp(unsigned mask = EMULATOR_FULL_WARP, emulator::Site site = emulator::Site::current()) {
  emulator::warp_barrier(mask, nullptr, nullptr, "__syncwarp", site);
}

namespace emulator {

template <class T>
struct Shuffle {
  T value, result;
  unsigned source;  // lane
};

// If the source lane does not participate, a lane keeps its own value; CUDA leaves the result undefined. In checked
// mode it gets a value that shows whether it matters.
template <class T>
void shuffle_all(void* const* arguments, unsigned arrived) {
  for (unsigned lanes = arrived; lanes; lanes &= lanes - 1) {
    auto* mine = static_cast<Shuffle<T>*>(arguments[__builtin_ctz(lanes)]);
    if (arrived >> mine->source & 1)
      mine->result = static_cast<Shuffle<T>*>(arguments[mine->source])->value;
    else if (sizeof(T) > 1)
      leave_undefined(&mine->result, sizeof(T), __builtin_ctz(lanes), mine->source);
  }
}

template <class T>
inline T shuffle(unsigned mask, T value, unsigned source, const char* name, Site site) {
  Shuffle<T> record{value, value, source};
  warp_barrier(mask, &record, shuffle_all<T>, name, site);
  return record.result;
}

struct Ballot {
  bool predicate;
  unsigned result;
};
inline void ballot_all(void* const* arguments, unsigned arrived) {
  unsigned votes = 0;
  for (unsigned lanes = arrived; lanes; lanes &= lanes - 1) {
    const int i = __builtin_ctz(lanes);
    votes |= unsigned(static_cast<Ballot*>(arguments[i])->predicate) << i;
  }
  for (unsigned lanes = arrived; lanes; lanes &= lanes - 1)
    static_cast<Ballot*>(arguments[__builtin_ctz(lanes)])->result = votes;
}
inline unsigned ballot(unsigned mask, bool predicate, const char* name, Site site) {
  Ballot record{predicate, 0};
  warp_barrier(mask, &record, ballot_all, name, site);
  return record.result;
}

template <class T>
struct Match {
  T value;
  unsigned result;
};
template <class T>
void match_all(void* const* arguments, unsigned arrived) {
  for (unsigned lanes = arrived; lanes; lanes &= lanes - 1) {
    auto* mine = static_cast<Match<T>*>(arguments[__builtin_ctz(lanes)]);
    mine->result = 0;
    for (unsigned others = arrived; others; others &= others - 1) {
      const int i = __builtin_ctz(others);
      mine->result |= unsigned(static_cast<Match<T>*>(arguments[i])->value == mine->value) << i;
    }
  }
}

enum class Fold { add, min, max, bit_and, bit_or, bit_xor };
template <class T, Fold fold>
void reduce_all(void* const* arguments, unsigned arrived) {
  T total = *static_cast<T*>(arguments[__builtin_ctz(arrived)]);
  for (unsigned lanes = arrived & (arrived - 1); lanes; lanes &= lanes - 1) {
    const T value = *static_cast<T*>(arguments[__builtin_ctz(lanes)]);
    if constexpr (fold == Fold::add) total += value;
    if constexpr (fold == Fold::min) total = value < total ? value : total;
    if constexpr (fold == Fold::max) total = value > total ? value : total;
    if constexpr (fold == Fold::bit_and) total &= value;
    if constexpr (fold == Fold::bit_or) total |= value;
    if constexpr (fold == Fold::bit_xor) total ^= value;
  }
  for (unsigned lanes = arrived; lanes; lanes &= lanes - 1) *static_cast<T*>(arguments[__builtin_ctz(lanes)]) = total;
}

}  // namespace emulator

// Shuffles within groups of `width` lanes (a power of two). A source outside the group is replaced by the lane itself.
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32,
                     emulator::Site site = emulator::Site::current()) {
  const unsigned group = emulator::lane() & ~(width - 1);
  return emulator::shuffle(mask, value, group | (source & (width - 1)), "__shfl_sync", site);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                        emulator::Site site = emulator::Site::current()) {
  const unsigned lane = emulator::lane();
  return emulator::shuffle(mask, value, (lane & (width - 1)) < delta ? lane : lane - delta, "__shfl_up_sync", site);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                          emulator::Site site = emulator::Site::current()) {
  const unsigned lane = emulator::lane();
  const bool outside = delta >= unsigned(width) - (lane & (width - 1));
  return emulator::shuffle(mask, value, outside ? lane : lane + delta, "__shfl_down_sync", site);
}
// Lanes may read from an earlier group, but not from a later one: PTX ISA, shfl.sync.bfly.
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                         emulator::Site site = emulator::Site::current()) {
  const unsigned lane = emulator::lane(), source = (lane ^ bits) % 32;
  return emulator::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, "__shfl_xor_sync", site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, emulator::Site site = emulator::Site::current()) {
  return emulator::ballot(mask, predicate, "__ballot_sync", site);
}
inline int __any_sync(unsigned mask, int predicate, emulator::Site site = emulator::Site::current()) {
  return emulator::ballot(mask, predicate, "__any_sync", site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, emulator::Site site = emulator::Site::current()) {
  return emulator::ballot(mask, !predicate, "__all_sync", site) == 0;
}
inline unsigned __activemask(emulator::Site site = emulator::Site::current()) {
  return emulator::converged_lanes(site);
}

template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, emulator::Site site = emulator::Site::current()) {
  emulator::Match<T> record{value, 0};
  emulator::warp_barrier(mask, &record, emulator::match_all<T>, "__match_any_sync", site);
  return record.result;
}

template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* same, emulator::Site site = emulator::Site::current()) {
  emulator::Match<T> record{value, 0};
  emulator::warp_barrier(mask, &record, emulator::match_all<T>, "__match_all_sync", site);
  *same = record.result == mask;
  return *same ? mask : 0;
}

#define EMULATOR_REDUCE(name, fold)                                                                   \
  template <class T>                                                                                  \
  inline T name(unsigned mask, T value, emulator::Site site = emulator::Site::current()) {            \
    emulator::warp_barrier(mask, &value, emulator::reduce_all<T, emulator::Fold::fold>, #name, site); \
    return value;                                                                                     \
  }
EMULATOR_REDUCE(__reduce_add_sync, add)
EMULATOR_REDUCE(__reduce_min_sync, min)
EMULATOR_REDUCE(__reduce_max_sync, max)
EMULATOR_REDUCE(__reduce_and_sync, bit_and)
EMULATOR_REDUCE(__reduce_or_sync, bit_or)
EMULATOR_REDUCE(__reduce_xor_sync, bit_xor)
#undef EMULATOR_REDUCE
