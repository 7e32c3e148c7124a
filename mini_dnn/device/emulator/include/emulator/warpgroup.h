// Emulated wrappers of mini_dnn/ptx_warpgroup.cuh; a part of ptx.h.
#pragma once
#include "async_interface.h"

namespace emulator::ptx {

struct Half {
  static constexpr bool is_half = true;
};
struct Bfloat {
  static constexpr bool is_half = false;
};

EMULATOR_ACCESS unsigned long long matrix_descriptor(const void* b, unsigned leading, unsigned stride,
                                                     Site site = Site::current()) {
  require_multiple(reinterpret_cast<size_t>(b), 16, "address of a matrix_descriptor", site);
  require_multiple(leading, 16, "distance `leading` of a matrix_descriptor", site);
  require_multiple(stride, 16, "distance `stride` of a matrix_descriptor", site);
  return describe_matrix(b, leading, stride, false, site);
}
EMULATOR_ACCESS unsigned long long matrix_descriptor_128b(const void* p, unsigned leading, unsigned stride,
                                                          Site site = Site::current()) {
  require_multiple(reinterpret_cast<size_t>(p), 1024, "address of a matrix_descriptor_128b", site);
  require_multiple(leading, 16, "distance `leading` of a matrix_descriptor_128b", site);
  require_multiple(stride, 16, "distance `stride` of a matrix_descriptor_128b", site);
  return describe_matrix(p, leading, stride, true, site);
}
EMULATOR_ACCESS unsigned long long matrix_descriptor_128b_lines(const void* p, unsigned leading, unsigned stride,
                                                                Site site = Site::current()) {
  return matrix_descriptor_128b(p, leading, stride, site) | 1ull << 61;  // a mark that does not exist on a GPU
}
// No effect here, because products read their registers immediately. Checked mode tests whether the fence is there.
inline void wgmma_fence() { note_register_fence(); }
template <int n, bool accumulate>
EMULATOR_ACCESS void wgmma_m64k16(float (&d)[n / 8][4], const unsigned (&a)[4], unsigned long long b,
                                  Site site = Site::current()) {
  static_assert(n == 24 || n == 48 || n == 72, "the sizes that mini_dnn/ptx.cuh writes out");
  note_result(d);
  product_start(d[0], a, {.b = b, .columns = n, .accumulate = accumulate}, site);
}
template <int columns, class Type, bool transposed_a, bool transposed_b>
EMULATOR_ACCESS void product_of(float (&d)[columns / 8][4], unsigned long long a, unsigned long long b, bool accumulate,
                                Site site) {
  note_result(d);
  product_start(d[0], nullptr,
                {.a = a,
                 .b = b,
                 .columns = columns,
                 .accumulate = accumulate,
                 .transposed_a = transposed_a,
                 .transposed_b = transposed_b,
                 .element = Type::is_half ? Element::half : Element::bfloat},
                site);
}
template <int columns, class Type, bool transposed_a, bool transposed_b>
EMULATOR_ACCESS void wgmma_m64k16(float (&d)[columns / 8][4], unsigned long long a, unsigned long long b,
                                  bool accumulate, Site site = Site::current()) {
  static_assert(columns == 64 || columns == 96 || columns == 128 || columns == 192 || columns == 256,
                "the sizes that mini_dnn/ptx.cuh writes out");
  product_of<columns, Type, transposed_a, transposed_b>(d, a, b, accumulate, site);
}
template <int columns, class Type, bool transposed_a, bool transposed_b>
EMULATOR_ACCESS void wgmma_narrow(float (&d)[columns / 8][4], unsigned long long a, unsigned long long b,
                                  bool accumulate, Site site = Site::current()) {
  static_assert(columns == 16 || columns == 32, "the sizes that mini_dnn/ptx_narrow.cuh writes out");
  product_of<columns, Type, transposed_a, transposed_b>(d, a, b, accumulate, site);
}
template <int columns, class Type, bool transposed_a, bool transposed_b>
EMULATOR_ACCESS void wgmma_any_width(float (&d)[columns / 8][4], unsigned long long a, unsigned long long b,
                                     bool accumulate, Site site = Site::current()) {
  static_assert(columns % 16 == 0 && columns != 48 && columns <= 256, "the sizes that mini_dnn/ptx_widths.cuh has");
  product_of<columns, Type, transposed_a, transposed_b>(d, a, b, accumulate, site);
}
EMULATOR_ACCESS void wgmma_m64n120k16(float (&d)[15][4], unsigned long long a, unsigned long long b, bool accumulate,
                                      Site site = Site::current()) {
  note_result(d);
  product_start(d[0], nullptr, {.a = a, .b = b, .columns = 120, .accumulate = accumulate}, site);
}
EMULATOR_ACCESS void wgmma_commit(Site site = Site::current()) { product_commit(site); }
template <int groups>
EMULATOR_ACCESS void wgmma_wait(Site site = Site::current()) {
  product_wait(groups, nullptr, site);
}
template <int groups, int count>
EMULATOR_ACCESS void wgmma_wait(float (&d)[count][4], Site site = Site::current()) {
  product_wait(groups, d[0], site);
}

template <int n>
EMULATOR_ACCESS void setmaxnreg_inc(Site site = Site::current()) {
  static_assert(n % 8 == 0 && n >= 24 && n <= 256, "registers: a multiple of 8 from 24 to 256");
  set_registers(n, true, site);
}
template <int n>
EMULATOR_ACCESS void setmaxnreg_dec(Site site = Site::current()) {
  static_assert(n % 8 == 0 && n >= 24 && n <= 256, "registers: a multiple of 8 from 24 to 256");
  set_registers(n, false, site);
}

}  // namespace emulator::ptx
