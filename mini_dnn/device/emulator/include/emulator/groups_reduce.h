// Reductions of cooperative groups; a part of groups.h.
#pragma once
#include "groups.h"

namespace emulator {

// What lanes pass to a reduction, and the order in which values are combined.
template <class T, class Op>
struct Reduction {
  T value;
  const Op* op;
  unsigned mask;
};
template <class T, class Op>
void reduce_group(void* const* arguments, unsigned arrived) {
  using Lane = Reduction<T, Op>;
  auto of = [&](unsigned lane) -> Lane& { return *static_cast<Lane*>(arguments[lane]); };
  const unsigned mask = of(__builtin_ctz(arrived)).mask, count = __builtin_popcount(mask);
  const Op& op = *of(__builtin_ctz(arrived)).op;
  T values[32];
  unsigned lanes[32];
  for (unsigned i = 0; i < count; i++) {
    lanes[i] = lane_at(mask, i);
    if (!(arrived >> lanes[i] & 1)) return note_absent(__builtin_ctz(arrived), lanes[i]);
    values[i] = of(lanes[i]).value;
  }
  unsigned width = 1;
  while (width < count) width *= 2;
  for (unsigned step = width / 2; step; step /= 2) {
    T before[32];
    for (unsigned i = 0; i < count; i++) before[i] = values[i];
    for (unsigned i = 0; i < count; i++)
      if ((i ^ step) < count) values[i] = op(before[i], before[i ^ step]);
  }
  const bool all_alike = width == count;
  for (unsigned i = 0; i < count; i++) of(lanes[i]).value = values[all_alike ? i : 0];
}

namespace cooperative_groups {

// cooperative_groups/reduce.h makes this visible.
namespace reductions {

#define EMULATOR_OPERATION(name, expression)                          \
  template <class T>                                                  \
  struct name {                                                       \
    T operator()(const T& a, const T& b) const { return expression; } \
  };
EMULATOR_OPERATION(plus, a + b)
EMULATOR_OPERATION(less, b < a ? b : a)
EMULATOR_OPERATION(greater, a < b ? b : a)
EMULATOR_OPERATION(bit_and, a& b)
EMULATOR_OPERATION(bit_or, a | b)
EMULATOR_OPERATION(bit_xor, a ^ b)
#undef EMULATOR_OPERATION

template <class T, class Op>
T reduce_lanes(unsigned mask, T value, const Op& op, const char* name, Site site) {
  Reduction<T, Op> record{value, &op, mask};
  warp_barrier(mask, &record, reduce_group<T, Op>, name, site);
  return record.value;
}
template <unsigned Size, class Of, class T, class Op>
T reduce(const thread_block_tile<Size, Of>&, const T& value, const Op& op, Site site = Site::current()) {
  return reduce_lanes(tile_mask(Size), value, op, "cooperative_groups::reduce", site);
}
template <class T, class Op>
T reduce(const coalesced_group& group, const T& value, const Op& op, Site site) {
  return reduce_lanes(group.mask_, value, op, "cooperative_groups::reduce", site);
}
template <class T, class Op>
T reduce(const thread_group&, const T& value, const Op&) {
  static_assert(
      details::never<Op>,
      "cooperative_groups::reduce takes a tile: reduce each tile of 32, and then the tiles' results, which go "
      "through shared memory and block.sync()");
  return value;
}
#define EMULATOR_LACKS(name)                                                                                 \
  template <class... Arguments>                                                                              \
  void name(const Arguments&...) {                                                                           \
    static_assert(details::never<Arguments...>,                                                              \
                  "the emulator has no " #name ": let thread_rank() 0 store or add the result of reduce()"); \
  }
EMULATOR_LACKS(reduce_store_async)
EMULATOR_LACKS(reduce_update_async)
#undef EMULATOR_LACKS

}  // namespace reductions
}  // namespace cooperative_groups
}  // namespace emulator
