// Tensor maps: what tensor copies (cp.async.bulk.tensor) move. The driver encodes them.
#pragma once

#include "harness.cuh"

#include <cuda.h>

#include <cstring>

namespace harness {

// A kernel receives it as `const __grid_constant__`, with any type of 128 bytes.
struct TensorMap {
  CUtensorMap map;
  template <class Other>
  operator Other() const {
    static_assert(sizeof(Other) == sizeof(CUtensorMap) && alignof(Other) >= 64);
    Other other;
    std::memcpy(&other, &map, sizeof other);
    return other;
  }
};

// A function of the driver, which is found without linking against the driver.
template <class Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
  CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
#else
  CUDA_CHECK(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found));
#endif
  if (found != cudaDriverEntryPointSuccess) {
    std::fprintf(stderr, "the GPU's driver has no tensor maps: install one for CUDA 12 or newer\n");
    std::exit(2);
  }
  return reinterpret_cast<Function>(function);
}

// `shape` and `box` are in elements, and `distances` are in bytes from one entry of an axis to the next. The innermost
// axis comes last and has no distance, because its elements are adjacent. Elements outside of the shape are read as
// zeros and are not written. `promotion` is the least that L2 reads from memory. `windows` is empty, or R, stride and
// padding of windows, of which a copy moves one pixel each. Then `shape` is (N, H, W, C), and `box` is the number of
// windows and channels.
inline TensorMap tensor_map(const Pointer& buffer, CUtensorMapDataType type, std::vector<cuuint64_t> shape,
                            std::vector<cuuint64_t> distances, std::vector<cuuint32_t> box, CUtensorMapSwizzle swizzle,
                            CUtensorMapL2promotion promotion, std::vector<int> windows = {}) {
  std::reverse(shape.begin(), shape.end());  // for the driver, the innermost axis comes first
  std::reverse(distances.begin(), distances.end());
  std::reverse(box.begin(), box.end());
  std::vector<cuuint32_t> every(shape.size(), 1);
  TensorMap found;
  CUresult status;
  if (windows.empty()) {
    const auto encode = driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
    status =
        encode(&found.map, type, cuuint32_t(shape.size()), buffer.address, shape.data(), distances.data(), box.data(),
               every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  } else {
    const auto encode = driver_function<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
    const int size = windows[0], padding = windows[2];
    const int lower[2] = {-padding, -padding}, upper[2] = {padding - size + 1, padding - size + 1};
    every[1] = every[2] = cuuint32_t(windows[1]);
    status = encode(&found.map, type, cuuint32_t(shape.size()), buffer.address, shape.data(), distances.data(), lower,
                    upper, box[0], box[1], every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion,
                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
  if (status != CUDA_SUCCESS) {
    std::fprintf(stderr, "the driver makes no tensor map: error %d\n", int(status));
    std::exit(2);
  }
  return found;
}

}  // namespace harness
