// The emulator's tensor maps. launch.py writes the same fields.
#pragma once

namespace emulator {

struct alignas(64) TensorMap {
  static constexpr unsigned long long MARK = 0x70616d2d7264646eull;

  unsigned long long mark;  // MARK if the host created it
  unsigned long long address;
  unsigned long long pitch[2];  // bytes along y and z
  unsigned shape[3], box[3];    // elements along x, y, z
  unsigned axes, itemsize, swizzle;
  // For a map of windows, whose axes are C, W, H and N: the number of images, and bytes from one to the next. Without
  // windows, `window` is 0.
  unsigned images;
  unsigned long long image_pitch;
  unsigned window, stride, padding;
};
static_assert(sizeof(TensorMap) == 128, "as on a GPU");

}  // namespace emulator
