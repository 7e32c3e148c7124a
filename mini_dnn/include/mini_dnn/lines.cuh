// Lines of 16-bit elements that start anywhere, read and written in wide words: #include <mini_dnn/lines.cuh>
#pragma once
#include <mini_dnn/sums.cuh>

namespace lines {

typedef unsigned short Bits;  // an element, whatever its type

// Eight elements that begin anywhere lie in two aligned pieces of eight.
struct Pieces {
  uint4 first, second;
};

// The pieces of the `count` elements, eight at most, of which the first one is number `shift` in the piece at `near`. A
// piece without any of them is not read, and is zero.
__device__ __forceinline__ Pieces read(const uint4* near, int shift, int count) {
  Pieces found = {};
  if (count > 0) found.first = near[0];
  if (count > 8 - shift) found.second = near[1];
  return found;
}

// An array may end within a piece. What lies in that one, from element `whole` on, is not read so, but added later: of
// the `count` elements from `start` on, which few threads have any of.
__device__ __forceinline__ void add_last(Bits* to, const Bits* from, long long start, int count, long long whole) {
  if (start + count <= whole) return;
#pragma unroll 1
  for (int i = int(max(whole - start, 0ll)); i < count; i++) to[i] = from[start + i];
}

// Those elements themselves, and zeros behind them. `shift`: where the first one lies in its piece.
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
// The same as sums::store_rows: rows of c start anywhere, and beta is 0. Each store of a warp is one line of the cache,
// 128 bytes: L2 has to read what it gets a part of. Two parts of 64 columns lie staged at a time, as a line may begin
// in one and end in the other.
template <class Out, int groups>
__device__ __forceinline__ void store(const float (&d)[groups][4], const sums::Matrix<Out>& to, char* staged, int row,
                                      int column) {
  constexpr int parts = groups / 8, ROWS_READ = 4;  // before the first of them is written
  const int lane = threadIdx.x % 32, here = min(to.m - row, 16), limit = min(to.n - column, 8 * groups);
  Bits* const corner = reinterpret_cast<Bits*>(to.c) + (long long)row * to.pitch + column;
  __syncwarp();  // all have read what was there before
#pragma unroll
  for (int part = 0; part <= parts; part++) {
    if (64 * (part - 1) >= limit) break;
    if (part > 1) __syncwarp();  // all have read the part before the last one
    if (part < parts) sums::stage<Out>(d, part < parts ? 8 * part : 0, to.alpha, staged + part % 2 * 2048);
    __syncwarp();
    // words of the last part and of this one: 0 to 31, and from 32 on
    auto word = [&](int r, int i) {
      i = part == 0 ? max(i, 32) : part == parts ? min(i, 31) : i;
      const char* const rows = staged + (part + 1 + i / 32) % 2 * 2048 + r * 128;
      return *reinterpret_cast<const unsigned*>(rows + ((i % 32 / 4) ^ r % 8) * 16 + i % 4 * 4);
    };
#pragma unroll 1
    for (int r0 = 0; r0 < here; r0 += ROWS_READ) {
      unsigned both[ROWS_READ];
      int x[ROWS_READ];  // a lane's first column: of two, which need not be those of a word that is staged
#pragma unroll
      for (int i = 0; i < ROWS_READ; i++) {
        const size_t address = reinterpret_cast<size_t>(corner + (long long)(r0 + i) * to.pitch);
        const int to_line = int((0 - address / 2) % 64) + 2 * lane;
        const unsigned own = word(r0 + i, to_line / 2), next = word(r0 + i, to_line / 2 + 1);
        both[i] = to_line % 2 ? __funnelshift_r(own, next, 16) : own;
        x[i] = 64 * (part - 1) + to_line;
      }
#pragma unroll
      for (int i = 0; i < ROWS_READ; i++) {
        if (r0 + i >= here) break;
        Bits* const c = corner + (long long)(r0 + i) * to.pitch;
        if (x[i] >= 0 && x[i] + 1 < limit)
          *reinterpret_cast<unsigned*>(c + x[i]) = both[i];
        else if (x[i] >= 0 && x[i] < limit)
          c[x[i]] = Bits(both[i]);
        else if (x[i] == -1)
          c[0] = Bits(both[i] >> 16);
      }
    }
  }
}
#endif

}  // namespace lines
