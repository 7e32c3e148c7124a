// Copies of the pixels in windows of a convolution (sm_90), in addition to ptx.cuh: #include <mini_dnn/ptx_im2col.cuh>
#pragma once
#include <mini_dnn/ptx.cuh>

#if defined(PTX_BULK) && !defined(MINI_DNN_EMULATOR)
namespace ptx {

// Global to shared memory, like tensor_load, for a map whose TensorMap(...) has windows=(R, stride, padding). From
// images (N,H,W,C), it loads one pixel of each window, in the order of windows: q along a row, p down an image, then n.
// The first window starts at row h = p stride - padding and column w = q stride - padding of image n. Its pixel is r
// rows and s columns further, and c is the first channel. Pixels outside of the images are zeros. "Data Movement and
// Conversion Instructions: cp.async.bulk.tensor", "Tensors: Im2col mode".
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
