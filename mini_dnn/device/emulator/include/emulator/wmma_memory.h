// Loads and stores of WMMA fragments; included by wmma.h.
#pragma once

namespace emulator::wmma {

// The first of this lane's elements: `position` in line `index` of the tile.
struct LanePart {
  int index, position;
};
template <class Fragment>
inline LanePart lane_part() {
  const int first = emulator::lane() * Fragment::num_elements;
  return {first / Fragment::line, first % Fragment::line};
}

#if defined(EMULATOR_COUNTED)  // what is copied here has already been counted
template <size_t bytes>
__attribute__((noinline)) EMULATOR_NOT_CHECKED void copy_bytes(void* to, const void* from) {
  for (size_t i = 0; i < bytes; i++) static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
}
#elif defined(EMULATOR_CHECKED)  // with accesses that have a hook
template <size_t bytes>
EMULATOR_ACCESS void copy_bytes(void* to, const void* from) {
  typedef char Piece __attribute__((vector_size(bytes < 16 ? bytes : 16), aligned(1), may_alias));
  for (size_t i = 0; i < bytes / sizeof(Piece); i++) static_cast<Piece*>(to)[i] = static_cast<const Piece*>(from)[i];
}
#else
template <size_t bytes>
inline void copy_bytes(void* to, const void* from) {
  __builtin_memcpy(to, from, bytes);
}
#endif
template <size_t bytes>
EMULATOR_ACCESS void copy_in(void* fragment, const void* memory) {
  emulator::note_tile_read(memory, bytes);
  copy_bytes<bytes>(fragment, memory);
}
template <size_t bytes>
EMULATOR_ACCESS void copy_out(void* memory, const void* fragment) {
  emulator::note_tile_write(memory, bytes);
  copy_bytes<bytes>(memory, fragment);
}

template <class Use, int m, int n, int k, class T, class Layout>
EMULATOR_ACCESS void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& f, const typename storage<T>::type* p,
                                      unsigned leading_dimension, emulator::Site site = emulator::Site::current()) {
  static_assert(!std::is_void_v<Layout>, "an accumulator is loaded with mem_row_major or mem_col_major");
  emulator::note_tile(p, leading_dimension * sizeof *p, "wmma::load_matrix_sync", site);
  const LanePart part = lane_part<fragment<Use, m, n, k, T, Layout>>();
  copy_in<sizeof f.x>(f.x, p + size_t(part.index) * leading_dimension + part.position);
}

template <int m, int n, int k, class T>
EMULATOR_ACCESS void load_matrix_sync(fragment<accumulator, m, n, k, T>& f, const T* p, unsigned leading_dimension,
                                      layout_t layout, emulator::Site site = emulator::Site::current()) {
  emulator::note_tile(p, leading_dimension * sizeof *p, "wmma::load_matrix_sync", site);
  const LanePart part = lane_part<fragment<accumulator, m, n, k, T>>();
  if (layout == mem_row_major) {
    copy_in<sizeof f.x>(f.x, p + size_t(part.index) * leading_dimension + part.position);
  } else {
    for (int i = 0; i < f.num_elements; i++) f.x[i] = p[size_t(part.position + i) * leading_dimension + part.index];
  }
}

template <int m, int n, int k, class T>
EMULATOR_ACCESS void store_matrix_sync(T* p, const fragment<accumulator, m, n, k, T>& f, unsigned leading_dimension,
                                       layout_t layout, emulator::Site site = emulator::Site::current()) {
  emulator::note_tile(p, leading_dimension * sizeof *p, "wmma::store_matrix_sync", site);
  check_set(f.x, f.num_elements, "fragment that wmma::store_matrix_sync stores");
  const LanePart part = lane_part<fragment<accumulator, m, n, k, T>>();
  if (layout == mem_row_major) {
    copy_out<sizeof f.x>(p + size_t(part.index) * leading_dimension + part.position, f.x);
  } else {
    for (int i = 0; i < f.num_elements; i++) p[size_t(part.position + i) * leading_dimension + part.index] = f.x[i];
  }
}

}  // namespace emulator::wmma
