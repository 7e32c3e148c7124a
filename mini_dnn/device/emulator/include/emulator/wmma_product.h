// mma_sync: D = A * B + C for a warp's tiles; included by wmma.h.
#pragma once
#include "multiply.h"
#include "tf32.h"

namespace emulator::wmma {

namespace product {

// Elements as the tensor core reads them. It ignores the low 13 bits of a float that is not a tf32 number. CUDA leaves
// that open; an H200 does it.
template <int n>
EMULATOR_NOT_CHECKED inline void read_operand(const float* x, float* out) {
  for (int i = 0; i < n; i++) out[i] = __uint_as_float(__float_as_uint(x[i]) & ~0x1fffu);
}
template <int n>
EMULATOR_NOT_CHECKED inline void read_operand(const __half* x, float* out) {
  halves_to_floats<n>(x, out);
}
// The part of a tile that a lane holds. at(row, column) is the place of an element.
template <class Fragment, class At>
EMULATOR_NOT_CHECKED inline void read_tile(const Fragment& fragment, int lane, At at) {
  constexpr int n = Fragment::num_elements;
  const int index = lane * n / Fragment::line, position = lane * n % Fragment::line;
  if constexpr (!Fragment::by_column) {
    read_operand<n>(fragment.x, at(index, position));
  } else {
    float part[n];
    read_operand<n>(fragment.x, part);
    for (int i = 0; i < n; i++) *at(position + i, index) = part[i];
  }
}
template <int n>
EMULATOR_NOT_CHECKED inline void read_sum(const float* x, float* out) {
  __builtin_memcpy(out, x, n * sizeof *x);
}
template <int n>
EMULATOR_NOT_CHECKED inline void read_sum(const __half* x, float* out) {
  halves_to_floats<n>(x, out);
}

// What each lane passes: its parts of the four tiles.
template <class D, class A, class B, class C>
struct Parts {
  D* d;
  const A* a;
  const B* b;
  const C* c;
};

template <class D, class A, class B, class C>
EMULATOR_NOT_CHECKED void whole_warp(void* const* arguments, unsigned arrived) {
  require_all_lanes(arrived);
  constexpr bool halves = std::is_same_v<typename A::storage_element_type, __half>;
  constexpr int m = A::rows, k = A::columns, n = B::columns;
  constexpr int step = halves ? k : 4;  // for tf32, nvcc uses consecutive instructions with k = 4
  alignas(64) float a[k / step][m][step], b[k / step][step][n], d[m][n];
  for (int lane = 0; lane < 32; lane++) {
    const auto& parts = *static_cast<Parts<D, A, B, C>*>(arguments[lane]);
    read_tile(*parts.a, lane, [&](int row, int column) { return &a[column / step][row][column % step]; });
    read_tile(*parts.b, lane, [&](int row, int column) { return &b[row / step][row % step][column]; });
    read_sum<C::num_elements>(parts.c->x, &d[0][0] + lane * C::num_elements);
  }
  constexpr bool half_accumulators = sizeof(D::x[0]) == 2 && sizeof(C::x[0]) == 2;
  for (int i = 0; i < k / step; i++)
    multiply(d, a[i], b[i], halves ? Element::half : Element::tf32,
             half_accumulators ? Accumulators::halves : Accumulators::floats);
  for (int lane = 0; lane < 32; lane++) {
    const auto& parts = *static_cast<Parts<D, A, B, C>*>(arguments[lane]);
    for (int i = 0; i < D::num_elements; i++) {
      const float sum = (&d[0][0])[lane * D::num_elements + i];
      // What rounds to zero as a half becomes +0
      parts.d->x[i] = half_accumulators && fabsf(sum) <= 0x1p-25f ? 0.0f : sum;
    }
  }
}

}  // namespace product

template <int m, int n, int k, class T, class LayoutA, class LayoutB, class TD, class TC>
EMULATOR_ACCESS void mma_sync(fragment<accumulator, m, n, k, TD>& d, const fragment<matrix_a, m, n, k, T, LayoutA>& a,
                              const fragment<matrix_b, m, n, k, T, LayoutB>& b,
                              const fragment<accumulator, m, n, k, TC>& c,
                              emulator::Site site = emulator::Site::current()) {
  using D = fragment<accumulator, m, n, k, TD>;
  using A = fragment<matrix_a, m, n, k, T, LayoutA>;
  using B = fragment<matrix_b, m, n, k, T, LayoutB>;
  using C = fragment<accumulator, m, n, k, TC>;
  note_call(std::is_same_v<typename A::storage_element_type, __half> ? "wmma::mma_sync" : "wmma::mma_sync, tf32",
            m * n * k);
  check_set(a.x, A::num_elements, "fragment a of wmma::mma_sync");
  check_set(b.x, B::num_elements, "fragment b of wmma::mma_sync");
  check_set(c.x, C::num_elements, "fragment c of wmma::mma_sync");
  note_result(d);
  product::Parts<D, A, B, C> parts{&d, &a, &b, &c};
  emulator::warp_barrier(0xffffffffu, &parts, product::whole_warp<D, A, B, C>, "wmma::mma_sync", site);
}

}  // namespace emulator::wmma
