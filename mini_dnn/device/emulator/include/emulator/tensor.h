// Twins of mini_dnn/ptx_tensor.cuh: part of ptx.h.
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
EMULATOR_ACCESS void store(const TensorMap& map, unsigned axes, BoxPlace at, const void* shared, Site site) {
  require_multiple(reinterpret_cast<size_t>(shared), UNIT, "address that tensor_store reads", site);
  check_map(map, axes, "tensor_store", site);
  require_multiple(size_t(at.x) * map.itemsize, PART, "distance of tensor_store's box from the start of its row", site);
  if (at.x < 0 || at.y < 0 || at.z < 0)
    fail("tensor_store (%s:%u): the box begins at (%d, %d, %d); boxes that are stored begin inside, from 0 on",
         site.file_name(), site.line(), at.x, at.y, at.z);
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
EMULATOR_ACCESS void tensor_store(const TensorMap& map, int x, int y, const void* shared, Site site = Site::current()) {
  tensor::store(map, 2, {x, y, 0}, shared, site);
}
EMULATOR_ACCESS void tensor_store(const TensorMap& map, int x, int y, int z, const void* shared,
                                  Site site = Site::current()) {
  tensor::store(map, 3, {x, y, z}, shared, site);
}
inline void tensor_prefetch(const TensorMap& map, Site site = Site::current()) {
  check_map(map, map.axes, "tensor_prefetch", site);
}

}  // namespace emulator::ptx
