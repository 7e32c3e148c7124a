// Parts of cooperative groups that the emulator lacks.
#pragma once
#include "groups.h"

namespace emulator::cooperative_groups {

// Each with a replacement.
#define EMULATOR_LACKS(name, words)                                                       \
  template <class... Arguments>                                                           \
  thread_block name(const Arguments&...) {                                                \
    static_assert(details::never<Arguments...>, "the emulator has no " #name ": " words); \
    return {};                                                                            \
  }
EMULATOR_LACKS(this_cluster, "#include <mini_dnn/ptx.cuh> has ptx::cluster_sync() and ptx::cluster_shared()")
EMULATOR_LACKS(this_multi_grid, "launch a kernel on each GPU")
EMULATOR_LACKS(binary_partition, "use coalesced_threads() in each branch of the if")
EMULATOR_LACKS(labeled_partition, "use __match_any_sync(), which returns the lanes that have the same label")
EMULATOR_LACKS(invoke_one, "write if (group.thread_rank() == 0)")
EMULATOR_LACKS(invoke_one_broadcast, "write if (group.thread_rank() == 0), and group.shfl(value, 0)")
EMULATOR_LACKS(memcpy_async,
               "let each thread copy elements and call group.sync(), or use ptx::cp_async() of <mini_dnn/ptx.cuh>")
EMULATOR_LACKS(wait,
               "let each thread copy elements and call group.sync(), or use ptx::cp_async() of <mini_dnn/ptx.cuh>")
EMULATOR_LACKS(inclusive_scan, "add up group.shfl_up(sum, d) for d = 1, 2, 4 ... where thread_rank() >= d")
EMULATOR_LACKS(exclusive_scan, "use the sum of group.shfl_up(sum, d) for d = 1, 2, 4 ..., minus the thread's own value")
#undef EMULATOR_LACKS

}  // namespace emulator::cooperative_groups
