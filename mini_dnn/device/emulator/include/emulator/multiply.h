// Small products of matrices in vector registers: what the twins of all matrix instructions come to.
#pragma once
#include "runtime_interface.h"

namespace emulator {

// d[i][:] += a(i, l) * b[l][:] for `block` rows at a time, as many as registers hold.
template <int m, int n, int k, class ReadA>
EMULATOR_NOT_CHECKED inline void multiply(float (&d)[m][n], const float (&b)[k][n], ReadA a) {
#ifdef __AVX512F__
  constexpr int width = n < 16 ? n : 16, block = 8;
#else
  constexpr int width = 8, block = 8;
#endif
  typedef float vector __attribute__((vector_size(4 * width)));
  for (int j = 0; j < n; j += width) {
    for (int i = 0; i < m; i += block) {
      vector sum[block];
      for (int r = 0; r < block; r++) __builtin_memcpy(&sum[r], &d[i + r][j], sizeof(vector));
      for (int l = 0; l < k; l++) {
        vector row;
        __builtin_memcpy(&row, &b[l][j], sizeof row);
        for (int r = 0; r < block; r++) sum[r] += a(i + r, l) * row;
      }
      for (int r = 0; r < block; r++) __builtin_memcpy(&d[i + r][j], &sum[r], sizeof(vector));
    }
  }
}

}  // namespace emulator
