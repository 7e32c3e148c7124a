// Lines of 16-bit elements that start at any address, read and written in wide words: #include <mini_dnn/lines.cuh>
#pragma once
#include <mini_dnn/sums.cuh>

namespace lines {

typedef unsigned short Bits;  // an element, whatever its type

// Eight elements that begin at any address are in two aligned pieces of eight.
struct Pieces {
  uint4 first, second;
};

// Reads the pieces that contain `count` elements, at most eight. `near` is the first piece, and `shift` is the place of
// the first element in it. A piece that contains none of the elements is not read, and is zero.
__device__ __forceinline__ Pieces read(const uint4* near, int shift, int count) {
  Pieces found = {};
  if (count > 0) found.first = near[0];
  if (count > 8 - shift) found.second = near[1];
  return found;
}

// An array may end within a piece, which must not be read as a whole. This function copies the elements of that piece,
// which begins with element `whole`, one by one, as far as they are among the `count` elements from `start` on. Only
// few threads have any of them.
__device__ __forceinline__ void add_last(Bits* to, const Bits* from, long long start, int count, long long whole) {
  if (start + count <= whole) return;
#pragma unroll 1
  for (int i = int(max(whole - start, 0ll)); i < count; i++) to[i] = from[start + i];
}

// The `count` elements of these pieces, followed by zeros. `shift` is the place of the first one in its piece.
__device__ __forceinline__ uint4 aligned(const Pieces& x, int shift, int count) {
  const unsigned word[8] = {x.first.x, x.first.y, x.first.z, x.first.w, x.second.x, x.second.y, x.second.z, x.second.w};
  unsigned by_four[6], by_two[5], eight[4];
#pragma unroll
  for (int i = 0; i < 6; i++) by_four[i] = shift & 4 ? word[i + 2] : word[i];
#pragma unroll
  for (int i = 0; i < 5; i++) by_two[i] = shift & 2 ? by_four[i + 1] : by_four[i];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const unsigned both = __funnelshift_r(by_two[i], by_two[i + 1], (shift & 1) * 16);
    const int here = count - 2 * i;
    eight[i] = here > 1 ? both : here == 1 ? both & 0xffff : 0;
  }
  return make_uint4(eight[0], eight[1], eight[2], eight[3]);
}

#ifdef PTX_BULK
// Does the same as sums::store_rows, for rows of c that start at any address and beta = 0. A warp has its scheduler
// nearly to itself here, so the number of instructions counts. Rows 0, 2, 4, ... start at the same place in a word, and
// so do rows 1, 3, 5, ...: what a lane computes about its columns is shared by such rows, and nothing branches. Two
// parts of 64 columns are staged at a time, because a word of two elements may belong to both.
template <class Out, int groups>
__device__ __forceinline__ void store(const float (&d)[groups][4], const sums::Matrix<Out>& to, char* staged, int row,
                                      int column) {
  constexpr int parts = groups / 8;
  const int lane = threadIdx.x % 32, here = min(to.m - row, 16);
  Bits* const corner = reinterpret_cast<Bits*>(to.c) + (long long)row * to.pitch + column;
  const int first_odd = reinterpret_cast<size_t>(corner) / 2 % 2;
  __syncwarp();  // all lanes have read the earlier content of `staged`
  sums::stage<Out>(d, 0, to.alpha, staged);
#pragma unroll
  for (int part = 0; part < parts; part++) {
    const int left = min(to.n - column, 8 * groups) - 64 * part, last = part + 1 == parts ? min(left, 64) : left;
    if (left <= 0) break;
    if (part > 0) __syncwarp();  // all lanes have read the previous part
    if (part + 1 < parts)
      sums::stage<Out>(d, part + 1 < parts ? 8 * part + 8 : 0, to.alpha, staged + (part + 1) % 2 * 2048);
    __syncwarp();
    const int own_at = part % 2 * 2048 + lane * 4;
    const int next_at = lane < 31 ? own_at + 4 : (part + 1 < parts ? part + 1 : part) % 2 * 2048;
#pragma unroll 1
    for (int parity = 0; parity < 2; parity++) {
      // If a row starts in the middle of a word, a lane writes its second element and the next lane's first one.
      const int odd = (first_odd + parity * to.pitch) % 2, first = 2 * lane + odd;
      const int pairs = first + 1 < last ? here - parity : 0, ends = first + 1 == last ? here - parity : 0;
      const int starts = part == 0 && odd && lane == 0 ? here - parity : 0;  // all three: the number of rows
      const char* const rows = staged + parity * 128;
      Bits* const c = corner + (long long)parity * to.pitch + 64 * part;
      unsigned own[8], next[8];
#pragma unroll
      for (int i = 0; i < 8; i++) {  // row 2 i + parity
        const int swizzle = 2 * i % 8 * 16 ^ parity * 16;
        own[i] = *reinterpret_cast<const unsigned*>(rows + 256 * i + (own_at ^ swizzle));
        next[i] = *reinterpret_cast<const unsigned*>(rows + 256 * i + (next_at ^ swizzle));
      }
#pragma unroll
      for (int i = 0; i < 8; i++) {
        Bits* const of_row = c + 2ll * i * to.pitch;
        const unsigned both = __funnelshift_r(own[i], next[i], odd * 16);
        if (2 * i < pairs) *reinterpret_cast<unsigned*>(of_row + first) = both;
        if (2 * i < ends) of_row[first] = Bits(both);
        if (part == 0 && 2 * i < starts) of_row[0] = Bits(own[i]);
      }
    }
  }
}
#endif

}  // namespace lines
