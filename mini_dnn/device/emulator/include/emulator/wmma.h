// wmma (CUDA C++ Programming Guide, warp matrix functions): tiles that the 32 lanes of a warp hold together.
//
// CUDA leaves open which lane holds which elements. Here, lane l holds elements [l * n, (l + 1) * n) of the tile in its
// own order (that of the layout for A and B, row-major for accumulators). A load copies a few wide words and needs no
// other lane. mma_sync synchronises the warp, and its last lane computes the whole product.
//
// Loads and stores do not wait for other lanes. Their writes are visible only after a __syncwarp() or __syncthreads(),
// which the CUDA memory model also requires.
#pragma once
#include <type_traits>

#include "half.h"
#include "runtime_interface.h"

namespace emulator::wmma {

using fp16::__half;

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}  // namespace precision

template <class T>
struct storage {
  using type = T;
};
template <>
struct storage<precision::tf32> {
  using type = float;
};

template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
  static_assert((m == 16 && n == 16 && k == 16) || (m == 8 && n == 32 && k == 16) || (m == 32 && n == 8 && k == 16) ||
                    (m == 16 && n == 16 && k == 8 && !std::is_same_v<T, __half>),
                "wmma shapes: m16n16k16, m8n32k16 and m32n8k16 for half, m16n16k8 for tf32");
  static_assert(std::is_same_v<T, __half> ||
                    std::is_same_v<T, std::conditional_t<std::is_same_v<Use, accumulator>, float, precision::tf32>>,
                "the emulator's wmma has operands of half and precision::tf32, and sums of half and float; for "
                "bfloat16, use ptx::mma_m16n8k16_bf16() of <mini_dnn/ptx.cuh>");
  static constexpr int rows = std::is_same_v<Use, matrix_b> ? k : m;
  static constexpr int columns = std::is_same_v<Use, matrix_a> ? k : n;
  static constexpr bool by_column = std::is_same_v<Layout, col_major>;
  static constexpr int line = by_column ? rows : columns;  // elements that are adjacent in memory
  static constexpr int num_elements = rows * columns / 32;
  using element_type = T;
  using storage_element_type = typename storage<T>::type;
  alignas(num_elements * sizeof(storage_element_type)) storage_element_type x[num_elements];
#ifdef EMULATOR_CHECKED
  EMULATOR_NOT_CHECKED fragment() { mark_unset(x, num_elements); }
#endif
};

template <class Use, int m, int n, int k, class T, class Layout, class V>
inline void fill_fragment(fragment<Use, m, n, k, T, Layout>& f, const V& value) {
  for (auto& element : f.x) element = value;
}

}  // namespace emulator::wmma

#include "wmma_memory.h"
#include "wmma_product.h"
