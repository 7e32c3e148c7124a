// PyTorch's tensors as the buffers of a kernel, and PyTorch's stream.
#pragma once

#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>

#include "harness.cuh"

using Tensors = std::vector<torch::Tensor>;

namespace harness {

struct Tensor : Pointer {
  torch::Tensor tensor;

  explicit Tensor(const torch::Tensor& given) : Pointer{given.data_ptr()}, tensor(given) {}
  std::size_t bytes() const { return tensor.nbytes(); }
  Pointer operator[](std::int64_t first) const { return Pointer{tensor[first].data_ptr()}; }
};

struct CurrentStream {
  cudaStream_t operator[](int) const { return c10::cuda::getCurrentCUDAStream(); }
};

}  // namespace harness
