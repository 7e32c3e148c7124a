// Copies of the pixels that windows of a convolution see (sm_90): #include <mini_dnn/ptx_im2col.cuh>, beside ptx.cuh.
#pragma once
#include <mini_dnn/ptx.cuh>

#if defined(PTX_BULK) && !defined(MINI_DNN_EMULATOR)
namespace ptx {

// Global to shared memory, as tensor_load does it, by a map whose TensorMap(...) has windows=(R, stride, padding): of
// images (N,H,W,C), one pixel for each window, in the order of windows: q along a row, p down an image, n. The first
// window starts at row h = p stride - padding and column w = q stride - padding of image n, and its pixel is the one r
// rows and s columns further; c is its first channel. Pixels beside the image, and those of images that are not there,
// are zeros. "Data Movement and Conversion Instructions: cp.async.bulk.tensor", "Tensors: Im2col mode".
__device__ __forceinline__ void tensor_load_windows(void* shared, const TensorMap& map, int c, int w, int h, int n,
                                                    mbarrier* barrier, int s, int r) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
      "%5}], [%6], {%7, %8};" ::"r"(shared_address(shared)),
      "l"(&map), "r"(c), "r"(w), "r"(h), "r"(n), "r"(shared_address(barrier)), "h"((unsigned short)s),
      "h"((unsigned short)r)
      : "memory");
}

}  // namespace ptx
#endif
