// Emulated PTX wrappers of mini_dnn/ptx.cuh, which describes each one with its place in the PTX ISA.
#pragma once
#include "async_interface.h"
#include "bfloat_bits.h"
#include "half_bits.h"
#include "math.h"
#include "multiply.h"

namespace emulator::ptx {

inline float max_nan(float a, float b) {
  return __builtin_isunordered(a, b) ? bits_as<float>(0x7fffffff) : larger<float, int>(a, b);
}

inline unsigned pack_halves(float low, float high) { return float_to_half2(float_x4{low, high}); }
inline float2 unpack_halves(unsigned both) {
  const float_x4 value = half2_to_float(both);
  return {value[0], value[1]};
}

inline unsigned pack_bfloats(float low, float high) {
  return float_to_bfloat(low) | unsigned(float_to_bfloat(high)) << 16;
}
inline float2 unpack_bfloats(unsigned both) { return {bfloat_to_float(both), bfloat_to_float(both >> 16)}; }

EMULATOR_ACCESS void mma_m16n8k8(float (&d)[4], unsigned a0, unsigned a1, unsigned b0, Site site = Site::current()) {
  check_set(d, 4, "sum d of mma_m16n8k8");
  note_result(d);
  const unsigned a[] = {a0, a1};
  WarpProduct product{Element::half, 8, d, a, &b0};
  warp_barrier(0xffffffffu, &product, mma_sync, "mma_m16n8k8", site);
}
EMULATOR_ACCESS void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                  Site site = Site::current()) {
  check_set(d, 4, "sum d of mma_m16n8k16");
  note_result(d);
  WarpProduct product{Element::half, 16, d, a, b};
  warp_barrier(0xffffffffu, &product, mma_sync, "mma_m16n8k16", site);
}
EMULATOR_ACCESS void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                       Site site = Site::current()) {
  check_set(d, 4, "sum d of mma_m16n8k16_bf16");
  note_result(d);
  WarpProduct product{Element::bfloat, 16, d, a, b};
  warp_barrier(0xffffffffu, &product, mma_sync, "mma_m16n8k16_bf16", site);
}
EMULATOR_ACCESS void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                      Site site = Site::current()) {
  check_set(d, 4, "sum d of mma_m16n8k8_tf32");
  note_result(d);
  WarpProduct product{Element::tf32, 8, d, a, b};
  warp_barrier(0xffffffffu, &product, mma_sync, "mma_m16n8k8_tf32", site);
}

namespace matrices {

struct Rows {
  unsigned* d;
  const void* row;
};

template <int count, bool transposed>
EMULATOR_NOT_CHECKED void whole_warp(void* const* arguments, unsigned arrived) {
  require_all_lanes(arrived);
  for (int i = 0; i < count; i++) {
    uint16_t matrix[8][8];
    for (int r = 0; r < 8; r++) __builtin_memcpy(matrix[r], static_cast<const Rows*>(arguments[8 * i + r])->row, 16);
    for (int lane = 0; lane < 32; lane++) {
      const int g = lane / 4, t = lane % 4;
      const unsigned low = transposed ? matrix[2 * t][g] : matrix[g][2 * t];
      const unsigned high = transposed ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1];
      static_cast<const Rows*>(arguments[lane])->d[i] = low | high << 16;
    }
  }
}

template <int count, bool transposed>
EMULATOR_ACCESS void load(unsigned (&d)[count], const void* row, Site site) {
  if (lane() < 8 * count) {  // the addresses of the other lanes are not used
    require_multiple(reinterpret_cast<size_t>(row), 16, "address of a row for ldmatrix", site);
    note_read(row, 16);
  }
  note_result(d);
  Rows rows{d, row};
  warp_barrier(0xffffffffu, &rows, whole_warp<count, transposed>, "ldmatrix", site);
}

struct StoredRows {
  const unsigned* d;
  void* row;
};

template <int count, bool transposed>
EMULATOR_NOT_CHECKED void whole_warp_stores(void* const* arguments, unsigned arrived) {
  require_all_lanes(arrived);
  for (int i = 0; i < count; i++) {
    uint16_t matrix[8][8];
    for (int lane = 0; lane < 32; lane++) {
      const int g = lane / 4, t = lane % 4;
      const unsigned both = static_cast<const StoredRows*>(arguments[lane])->d[i];
      (transposed ? matrix[2 * t][g] : matrix[g][2 * t]) = both;
      (transposed ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1]) = both >> 16;
    }
    for (int r = 0; r < 8; r++)
      __builtin_memcpy(static_cast<const StoredRows*>(arguments[8 * i + r])->row, matrix[r], 16);
  }
}

template <int count, bool transposed>
EMULATOR_ACCESS void store(void* row, const unsigned (&d)[count], Site site) {
  if (lane() < 8 * count) {
    require_multiple(reinterpret_cast<size_t>(row), 16, "address of a row for stmatrix", site);
    note_write(row, 16);
  }
  StoredRows rows{d, row};
  warp_barrier(0xffffffffu, &rows, whole_warp_stores<count, transposed>, "stmatrix", site);
}

}  // namespace matrices

template <int count>
EMULATOR_ACCESS void ldmatrix(unsigned (&d)[count], const void* row, Site site = Site::current()) {
  static_assert(count == 1 || count == 2 || count == 4, "ldmatrix loads 1, 2 or 4 matrices");
  matrices::load<count, false>(d, row, site);
}
template <int count>
EMULATOR_ACCESS void ldmatrix_trans(unsigned (&d)[count], const void* row, Site site = Site::current()) {
  static_assert(count == 1 || count == 2 || count == 4, "ldmatrix loads 1, 2 or 4 matrices");
  matrices::load<count, true>(d, row, site);
}

template <int count>
EMULATOR_ACCESS void stmatrix(void* row, const unsigned (&d)[count], Site site = Site::current()) {
  static_assert(count == 1 || count == 2 || count == 4, "stmatrix stores 1, 2 or 4 matrices");
  matrices::store<count, false>(row, d, site);
}
template <int count>
EMULATOR_ACCESS void stmatrix_trans(void* row, const unsigned (&d)[count], Site site = Site::current()) {
  static_assert(count == 1 || count == 2 || count == 4, "stmatrix stores 1, 2 or 4 matrices");
  matrices::store<count, true>(row, d, site);
}

template <int bytes>
EMULATOR_ACCESS void cp_async(void* shared, const void* global, int valid = bytes, Site site = Site::current()) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
  if (valid < 0 || valid > bytes) fail_at("cp_async", site, "%d of %d bytes are valid", valid, bytes);
  require_multiple(reinterpret_cast<size_t>(shared), bytes, "address that cp_async writes", site);
  require_multiple(reinterpret_cast<size_t>(global), bytes, "address that cp_async reads", site);
  copy_async(shared, global, bytes, valid);
}
EMULATOR_ACCESS void cp_async_commit() { copy_async_commit(); }
template <int groups>
EMULATOR_ACCESS void cp_async_wait() {
  copy_async_wait(groups);
}

typedef unsigned long long mbarrier;

EMULATOR_ACCESS void mbarrier_init(mbarrier* barrier, unsigned arrivals, Site site = Site::current()) {
  barrier_init(barrier, arrivals, site);
}
EMULATOR_ACCESS void mbarrier_arrive(mbarrier* barrier, Site site = Site::current()) {
  barrier_arrive(barrier, 0, site);
}
EMULATOR_ACCESS void mbarrier_arrive_expect_tx(mbarrier* barrier, unsigned bytes, Site site = Site::current()) {
  barrier_arrive(barrier, bytes, site);
}
EMULATOR_ACCESS bool mbarrier_try_wait(mbarrier* barrier, unsigned parity, Site site = Site::current()) {
  return barrier_try_wait(barrier, parity, site);
}
EMULATOR_ACCESS void mbarrier_wait(mbarrier* barrier, unsigned parity, Site site = Site::current()) {
  barrier_wait(barrier, parity, site);
}

EMULATOR_ACCESS void bulk_load(void* shared, const void* global, unsigned bytes, mbarrier* barrier,
                               Site site = Site::current()) {
  require_multiple(reinterpret_cast<size_t>(shared), 16, "address that bulk_load writes", site);
  require_multiple(reinterpret_cast<size_t>(global), 16, "address that bulk_load reads", site);
  require_multiple(bytes, 16, "size of bulk_load", site);
  emulator::bulk_load(shared, global, bytes, barrier, site);
}
inline void bulk_prefetch(const void* global, unsigned bytes, Site site = Site::current()) {
  require_multiple(reinterpret_cast<size_t>(global), 16, "address that bulk_prefetch reads", site);
  require_multiple(bytes, 16, "size of bulk_prefetch", site);
}
EMULATOR_ACCESS void bulk_store(void* global, const void* shared, unsigned bytes, Site site = Site::current()) {
  require_multiple(reinterpret_cast<size_t>(global), 16, "address that bulk_store writes", site);
  require_multiple(reinterpret_cast<size_t>(shared), 16, "address that bulk_store reads", site);
  require_multiple(bytes, 16, "size of bulk_store", site);
  emulator::bulk_store(global, shared, bytes);
}
EMULATOR_ACCESS void bulk_commit() { emulator::bulk_commit(); }
template <int groups>
EMULATOR_ACCESS void bulk_wait_read() {
  emulator::bulk_wait(groups, true);
}
template <int groups>
EMULATOR_ACCESS void bulk_wait() {
  emulator::bulk_wait(groups, false);
}
inline void fence_proxy_async() { note_proxy_fence(); }

// Launches run one after the other. Checked mode checks what a launch accesses before it waits for earlier ones.
inline void grid_wait() { note_grid_wait(); }
inline void grid_launch_dependents() {}

}  // namespace emulator::ptx

#include "tensor.h"
#include "warpgroup.h"
