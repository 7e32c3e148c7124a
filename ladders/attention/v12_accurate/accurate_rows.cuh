// The tile of a warpgroup, with the errors of a running maximum or smaller ones.
#pragma once
#include "renewed_rows.cuh"

constexpr int EXACT = 16;  // keys of a block whose powers are multiplied without rounding

struct AccurateRows : RenewedRows {
  unsigned rest[4];  // what rounding takes from the powers of the first keys, packed like them

  // Keeps what rounding takes from a pair of powers, if it belongs to the first keys.
  __device__ __forceinline__ void keep(int i, int r, float x, float y, half2 pair) {
    if (i < EXACT / 8) rest[i * 2 + r] = ptx::pack_halves(x - __low2float(pair), y - __high2float(pair));
  }

  __device__ __forceinline__ void first_powers(float scale) {
    new_powers<BLOCK>(scale, [&](int i, int r, float x, float y, half2 pair) { keep(i, r, x, y, pair); });
  }

  template <int keys, class Ask>
  __device__ __forceinline__ void go_on(float scale, Ask ask) {
    RenewedRows::go_on<keys>(scale, ask, [&](int i, int r, float x, float y, half2 pair) { keep(i, r, x, y, pair); });
  }

  // As in Rows, and adds what rounding took from the first powers, times the same values.
  template <int keys>
  __device__ __forceinline__ void plus_values(unsigned long long v, bool add) {
    Rows::plus_values<keys>(v, add);
    ptx::wgmma_values<D>(o, rest, v, true);
  }
};
