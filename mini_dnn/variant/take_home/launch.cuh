// Launches that <<< >>> cannot express.
#pragma once

#include "harness.cuh"

#include <utility>

namespace harness {

struct Launch {
  dim3 grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
  dim3 cluster;  // blocks that run at the same time and can access each other's shared memory
  bool early;    // may begin before the previous kernel has ended (programmatic dependent launch)
};

// Arguments are converted to the types that the kernel declares, as in a call.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Launch& how, Arguments&&... arguments) {
  int device, major;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));

  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config = {};
  config.gridDim = how.grid;
  config.blockDim = how.block;
  config.dynamicSmemBytes = how.shared_bytes;
  config.stream = how.stream;
  config.attrs = attributes;
  if (how.cluster.x * how.cluster.y * how.cluster.z > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {how.cluster.x, how.cluster.y, how.cluster.z};
  }
  if (how.early && major >= 9) {  // older GPUs do not support it
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace harness
