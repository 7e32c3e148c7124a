// Loads and stores of WMMA fragments; included by wmma.h.
#pragma once

namespace emulator::wmma {

// Where this lane's elements start: `position` in line `index` of the tile.
struct LanePart {
  int index, position;
};
template <class Fragment>
inline LanePart lane_part() {
  const int first = emulator::lane() * Fragment::num_elements;
  return {first / Fragment::line, first % Fragment::line};
}

template <class Use, int m, int n, int k, class T, class Layout>
inline void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& f, const typename storage<T>::type* p,
                             unsigned leading_dimension) {
  static_assert(!std::is_void_v<Layout>, "an accumulator is loaded with mem_row_major or mem_col_major");
  const LanePart part = lane_part<fragment<Use, m, n, k, T, Layout>>();
  memcpy(f.x, p + size_t(part.index) * leading_dimension + part.position, sizeof f.x);
}

template <int m, int n, int k, class T>
inline void load_matrix_sync(fragment<accumulator, m, n, k, T>& f, const T* p, unsigned leading_dimension,
                             layout_t layout) {
  const LanePart part = lane_part<fragment<accumulator, m, n, k, T>>();
  if (layout == mem_row_major) {
    memcpy(f.x, p + size_t(part.index) * leading_dimension + part.position, sizeof f.x);
  } else {
    for (int i = 0; i < f.num_elements; i++) f.x[i] = p[size_t(part.position + i) * leading_dimension + part.index];
  }
}

template <int m, int n, int k, class T>
inline void store_matrix_sync(T* p, const fragment<accumulator, m, n, k, T>& f, unsigned leading_dimension,
                              layout_t layout) {
  const LanePart part = lane_part<fragment<accumulator, m, n, k, T>>();
  if (layout == mem_row_major) {
    memcpy(p + size_t(part.index) * leading_dimension + part.position, f.x, sizeof f.x);
  } else {
    for (int i = 0; i < f.num_elements; i++) p[size_t(part.position + i) * leading_dimension + part.index] = f.x[i];
  }
}

}  // namespace emulator::wmma
