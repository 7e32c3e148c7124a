// Warp functions: each lane passes a record, and the last one to arrive computes all results.
#pragma once
#include "number_types.h"
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
inline T exchange(unsigned mask, T value, unsigned source, const char* name, Site site) {
  Shuffle<T> record{value, value, source};
  warp_barrier(mask, &record, shuffle_all<T>, name, site);
  return record.result;
}

// Members of groups take what can be copied as bytes, which CUDA's pairs of halves cannot.
template <class T>
inline T shuffle(unsigned mask, T value, unsigned source, const char* name, Site site) {
  static_assert(sizeof(T) <= 32 && !is_half_pair<T>,
                "shuffles of cooperative groups take values of at most 32 bytes that are no pair of halves or "
                "bfloats: shuffle the parts of this value, or use __shfl_sync() for a pair");
  return exchange(mask, value, source, name, site);
}
// Other functions take numbers.
template <class T>
inline T shuffle_number(unsigned mask, T value, unsigned source, const char* name, Site site) {
  static_assert(is_number<T> || is_half<T> || is_half_pair<T>,
                "CUDA's __shfl functions take numbers only: shuffle each member of this value, or use shfl() of "
                "cooperative groups");
  return exchange(mask, value, source, name, site);
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
  static_assert(is_number<T>,
                "CUDA's match functions take numbers only: pass the bits of a half, or each member of another value");
  T value;
  unsigned result;
};
// Matches compare bits (PTX ISA, match.sync): a NaN matches itself, and -0.0f does not match 0.0f.
template <class T>
inline unsigned long long bits_of(const T& value) {
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
void match_all(void* const* arguments, unsigned arrived) {
  for (unsigned lanes = arrived; lanes; lanes &= lanes - 1) {
    auto* mine = static_cast<Match<T>*>(arguments[__builtin_ctz(lanes)]);
    mine->result = 0;
    for (unsigned others = arrived; others; others &= others - 1) {
      const int i = __builtin_ctz(others);
      mine->result |= unsigned(bits_of(static_cast<Match<T>*>(arguments[i])->value) == bits_of(mine->value)) << i;
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
  return emulator::shuffle_number(mask, value, group | (source & (width - 1)), "__shfl_sync", site);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                        emulator::Site site = emulator::Site::current()) {
  const unsigned lane = emulator::lane();
  return emulator::shuffle_number(mask, value, (lane & (width - 1)) < delta ? lane : lane - delta, "__shfl_up_sync",
                                  site);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                          emulator::Site site = emulator::Site::current()) {
  const unsigned lane = emulator::lane();
  const bool outside = delta >= unsigned(width) - (lane & (width - 1));
  return emulator::shuffle_number(mask, value, outside ? lane : lane + delta, "__shfl_down_sync", site);
}
// Lanes may read from an earlier group, but not from a later one: PTX ISA, shfl.sync.bfly.
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                         emulator::Site site = emulator::Site::current()) {
  const unsigned lane = emulator::lane(), source = (lane ^ bits) % 32;
  return emulator::shuffle_number(mask, value, source > (lane | (width - 1)) ? lane : source, "__shfl_xor_sync", site);
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

// CUDA has these for int and unsigned; smaller integers become int. Those of bits return unsigned.
#define EMULATOR_REDUCE(name, fold, Number)                                                                \
  inline Number name(unsigned mask, Number value, emulator::Site site = emulator::Site::current()) {       \
    emulator::warp_barrier(mask, &value, emulator::reduce_all<Number, emulator::Fold::fold>, #name, site); \
    return value;                                                                                          \
  }
EMULATOR_REDUCE(__reduce_add_sync, add, int)
EMULATOR_REDUCE(__reduce_add_sync, add, unsigned)
EMULATOR_REDUCE(__reduce_min_sync, min, int)
EMULATOR_REDUCE(__reduce_min_sync, min, unsigned)
EMULATOR_REDUCE(__reduce_max_sync, max, int)
EMULATOR_REDUCE(__reduce_max_sync, max, unsigned)
EMULATOR_REDUCE(__reduce_and_sync, bit_and, unsigned)
EMULATOR_REDUCE(__reduce_or_sync, bit_or, unsigned)
EMULATOR_REDUCE(__reduce_xor_sync, bit_xor, unsigned)
#undef EMULATOR_REDUCE
