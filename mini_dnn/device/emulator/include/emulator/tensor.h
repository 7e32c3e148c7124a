// Emulated wrappers of mini_dnn/ptx_tensor.cuh; a part of ptx.h.
#pragma once
#include "async_interface.h"

namespace emulator::ptx {

using emulator::TensorMap;

namespace tensor {

constexpr size_t UNIT = 128, PART = 16;  // bytes

EMULATOR_ACCESS void load(void* shared, const TensorMap& map, unsigned axes, BoxPlace at, mbarrier* barrier,
                          Site site) {
  require_multiple(reinterpret_cast<size_t>(shared), UNIT, "address that tensor_load writes", site);
  check_map(map, axes, "tensor_load", site);
  require_multiple(size_t(at.x) * map.itemsize, PART, "distance of tensor_load's box from the start of its row", site);
  emulator::tensor_load(shared, map, at, barrier, site);
}
EMULATOR_ACCESS void load_windows(void* shared, const TensorMap& map, BoxPlace at, mbarrier* barrier, Site site) {
  require_multiple(reinterpret_cast<size_t>(shared), UNIT, "address that tensor_load_windows writes", site);
  check_windows(map, "tensor_load_windows", site);
  require_multiple(size_t(at.x) * map.itemsize, PART, "distance of tensor_load_windows' channels from the first one",
                   site);
  const auto starts = [&](int place, unsigned side) {  // of a window
    const int from_first = place + int(map.padding), last = int(side + map.padding) - int(map.window);
    return from_first >= 0 && from_first % int(map.stride) == 0 && place <= last;
  };
  if (!starts(at.y, map.shape[1]) || !starts(at.z, map.shape[2]))
    fail_at("tensor_load_windows", site,
            "no window of %u x %u begins at column %d and row %d of images of %u x %u: they begin at p * %u - %u",
            map.window, map.window, at.y, at.z, map.shape[2], map.shape[1], map.stride, map.padding);
  if (at.right < 0 || at.down < 0 || at.right >= int(map.window) || at.down >= int(map.window))
    fail_at("tensor_load_windows", site, "a window of %u x %u has no pixel %d columns and %d rows further", map.window,
            map.window, at.right, at.down);
  emulator::tensor_load(shared, map, at, barrier, site);
}
EMULATOR_ACCESS void store(const TensorMap& map, unsigned axes, BoxPlace at, const void* shared, Site site) {
  require_multiple(reinterpret_cast<size_t>(shared), UNIT, "address that tensor_store reads", site);
  check_map(map, axes, "tensor_store", site);
  require_multiple(size_t(at.x) * map.itemsize, PART, "distance of tensor_store's box from the start of its row", site);
  if (at.x < 0 || at.y < 0 || at.z < 0)
    fail_at("tensor_store", site, "the box begins at (%d, %d, %d); boxes that are stored begin inside, from 0 on", at.x,
            at.y, at.z);
  emulator::tensor_store(map, at, shared);
}

}  // namespace tensor

EMULATOR_ACCESS void tensor_load(void* shared, const TensorMap& map, int x, int y, mbarrier* barrier,
                                 Site site = Site::current()) {
  tensor::load(shared, map, 2, {x, y, 0}, barrier, site);
}
EMULATOR_ACCESS void tensor_load(void* shared, const TensorMap& map, int x, int y, int z, mbarrier* barrier,
                                 Site site = Site::current()) {
  tensor::load(shared, map, 3, {x, y, z}, barrier, site);
}
EMULATOR_ACCESS void tensor_load_windows(void* shared, const TensorMap& map, int c, int w, int h, int n,
                                         mbarrier* barrier, int s, int r, Site site = Site::current()) {
  tensor::load_windows(shared, map, {c, w, h, n, s, r}, barrier, site);
}
EMULATOR_ACCESS void tensor_store(const TensorMap& map, int x, int y, const void* shared, Site site = Site::current()) {
  tensor::store(map, 2, {x, y, 0}, shared, site);
}
EMULATOR_ACCESS void tensor_store(const TensorMap& map, int x, int y, int z, const void* shared,
                                  Site site = Site::current()) {
  tensor::store(map, 3, {x, y, z}, shared, site);
}
inline void tensor_prefetch(const TensorMap& map, Site site = Site::current()) {
  if (map.window)
    check_windows(map, "tensor_prefetch", site);
  else
    check_map(map, map.axes, "tensor_prefetch", site);
}

}  // namespace emulator::ptx
