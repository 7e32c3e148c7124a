// Tensor maps: what tensor copies (cp.async.bulk.tensor) move. The driver encodes them.
#pragma once

#include "harness.cuh"

#include <cuda.h>

#include <cstring>

namespace harness {

// A kernel takes it as `const __grid_constant__`, whatever it calls these 128 bytes.
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

// The driver's function, which nothing has to be linked for.
inline decltype(&cuTensorMapEncodeTiled) encode_tiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
  CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
#else
  CUDA_CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found));
#endif
  if (found != cudaDriverEntryPointSuccess) {
    std::fprintf(stderr, "the GPU's driver has no tensor maps: install one for CUDA 12 or newer\n");
    std::exit(2);
  }
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

// `shape` and `box` in elements, `distances` in bytes from one entry of an axis to the next; the innermost axis comes
// last and has no distance, as its elements lie side by side. What lies outside of the shape is read as zeros and is
// not written.
inline TensorMap tensor_map(const Pointer& buffer, CUtensorMapDataType type, std::vector<cuuint64_t> shape,
                            std::vector<cuuint64_t> distances, std::vector<cuuint32_t> box,
                            CUtensorMapSwizzle swizzle) {
  std::reverse(shape.begin(), shape.end());  // the driver has the innermost axis first
  std::reverse(distances.begin(), distances.end());
  std::reverse(box.begin(), box.end());
  const std::vector<cuuint32_t> every(shape.size(), 1);
  TensorMap found;
  const CUresult status =
      encode_tiled()(&found.map, type, cuuint32_t(shape.size()), buffer.address, shape.data(), distances.data(),
                     box.data(), every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    std::fprintf(stderr, "cuTensorMapEncodeTiled failed with error %d\n", int(status));
    std::exit(2);
  }
  return found;
}

}  // namespace harness
