// Emulated wrappers of mini_dnn/ptx_attention.cuh, which describes each one.
#pragma once
#include "ptx.h"

namespace emulator::ptx {

// From mini_dnn/ptx_test_wait.cuh.
EMULATOR_ACCESS bool mbarrier_test_wait(mbarrier* barrier, unsigned parity, Site site = Site::current()) {
  return barrier_try_wait(barrier, parity, site);
}

// Rounded to nearest. The last two bits of a GPU's instruction may differ.
inline float exp2_approx(float x) {
  const float y = __builtin_exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;  // a NaN stays NaN
}

namespace matrices {

struct Turned {
  unsigned pair, result;
};

EMULATOR_NOT_CHECKED inline void turn(void* const* arguments, unsigned arrived) {
  require_all_lanes(arrived);
  uint16_t matrix[8][8];
  for (int lane = 0; lane < 32; lane++) {
    const unsigned pair = static_cast<const Turned*>(arguments[lane])->pair;
    matrix[2 * (lane % 4)][lane / 4] = pair;
    matrix[2 * (lane % 4) + 1][lane / 4] = pair >> 16;
  }
  for (int lane = 0; lane < 32; lane++) {
    const uint16_t* const two = &matrix[lane / 4][2 * (lane % 4)];
    static_cast<Turned*>(arguments[lane])->result = two[0] | unsigned(two[1]) << 16;
  }
}

}  // namespace matrices

inline unsigned transpose_8x8(unsigned pair, Site site = Site::current()) {
  matrices::Turned turned{pair, 0};
  warp_barrier(0xffffffffu, &turned, matrices::turn, "transpose_8x8", site);
  return turned.result;
}

template <int columns, bool accumulate, int groups>
EMULATOR_ACCESS void wgmma_scores(float (&d)[groups][4], unsigned long long a, unsigned long long b,
                                  Site site = Site::current()) {
  static_assert(columns % 16 == 0 && columns >= 16 && columns <= 112, "the sizes that are written out there");
  static_assert(columns / 8 <= groups, "d has no room for so many columns");
  note_result(d);
  product_start(d[0], nullptr, {.a = a, .b = b, .columns = columns, .accumulate = accumulate}, site);
}
// From mini_dnn/ptx_scores.cuh.
template <int columns, bool accumulate, int groups>
EMULATOR_ACCESS void wgmma_row_scores(float (&d)[groups][4], unsigned long long a, unsigned long long b,
                                      Site site = Site::current()) {
  static_assert(columns == 72 || (columns % 16 == 0 && columns >= 16 && columns <= 128),
                "the sizes that are written out there");
  static_assert(columns / 8 <= groups, "d has no room for so many columns");
  note_result(d);
  product_start(d[0], nullptr, {.a = a, .b = b, .columns = columns, .accumulate = accumulate}, site);
}
// From mini_dnn/ptx_few_values.cuh.
EMULATOR_ACCESS void wgmma_few_values(float (&d)[1][4], unsigned long long a, unsigned long long b, bool accumulate,
                                      Site site = Site::current()) {
  note_result(d);
  product_start(d[0], nullptr, {.a = a, .b = b, .columns = 8, .accumulate = accumulate, .transposed_a = true}, site);
}
// From mini_dnn/ptx_few_scores.cuh.
template <bool accumulate>
EMULATOR_ACCESS void wgmma_few_scores(float (&d)[1][4], unsigned long long a, unsigned long long b,
                                      Site site = Site::current()) {
  note_result(d);
  product_start(d[0], nullptr, {.a = a, .b = b, .columns = 8, .accumulate = accumulate}, site);
}
template <int columns>
EMULATOR_ACCESS void wgmma_values(float (&d)[columns / 8][4], const unsigned (&a)[4], unsigned long long b,
                                  bool accumulate, Site site = Site::current()) {
  static_assert(columns == 32 || columns == 64 || columns == 128, "the sizes that are written out there");
  note_result(d);
  product_start(d[0], a, {.b = b, .columns = columns, .accumulate = accumulate, .transposed_b = true}, site);
}

}  // namespace emulator::ptx
