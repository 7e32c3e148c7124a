// Part of kernel.cu: tensor copies of rows of c that start anywhere.

// Moves 16 rows of sums of a warp `head` columns to the left, in registers: two rows of a lane, as pairs of 16 bits.
struct Shift {
  int pair, odd;  // the shift: whole pairs, and one element more

  // From a group of 8 columns, in both rows: the elements that become the first ones of pairs, and the second ones.
  template <class T>
  __device__ __forceinline__ uint2 split(const float (&four)[4], float alpha) const {
    const unsigned upper = sums::pack<T>(alpha * four[0], alpha * four[1]);
    const unsigned lower = sums::pack<T>(alpha * four[2], alpha * four[3]);
    const unsigned even = __byte_perm(upper, lower, 0x5410), uneven = __byte_perm(upper, lower, 0x7632);
    return odd ? make_uint2(uneven, even) : make_uint2(even, uneven);
  }
  // The shifted pairs of a group in both rows, from the results of split() for this group and the next one.
  __device__ __forceinline__ uint2 join(uint2 here, uint2 next) const {
    const int lane = threadIdx.x % 32, of_four = lane % 4, first = lane - of_four;
    const unsigned low = __shfl_sync(~0u, of_four < pair ? next.x : here.x, first + (of_four + pair) % 4);
    const unsigned high = __shfl_sync(~0u, of_four < pair + odd ? next.y : here.y, first + (of_four + pair + odd) % 4);
    return make_uint2(__byte_perm(low, high, 0x5410), __byte_perm(low, high, 0x7632));
  }
};

// Like sums::store_tensor, if all rows start at the same place in a piece of 16 bytes. `x` is the place of the tile in
// eight rows of c that follow each other. Threads store what is left of the first whole piece of a row and right of the
// last one, and the pieces of a part that is not complete.
template <int groups>
__device__ __forceinline__ void store_pieces(const float (&d)[groups][4], const ptx::TensorMap& c,
                                             const sums::Matrix<Out>& to, char* staged, int x, int row, int column) {
  const int lane = threadIdx.x % 32, rows = min(to.m - row, 16);
  const int columns = min(to.n - column, 8 * groups);
  const int head = -x & 7, pieces = max(columns - head, 0) / 8;
  const Shift shift{head / 2, head % 2};
  lines::Bits* const corner = reinterpret_cast<lines::Bits*>(to.c) + (long long)row * to.pitch + column;
  auto store_single = [&](const float (&four)[4], int at, int first, int last) {  // of a group that begins at `at`
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int x = at + lane % 4 * 2 + i % 2, line = lane / 4 + i / 2 * 8;
      if (x >= first && x < last && line < rows)
        *reinterpret_cast<Out*>(corner + (long long)line * to.pitch + x) = Out(to.alpha * four[i]);
    }
  };
  store_single(d[0], 0, 0, min(head, columns));
  if (columns == 8 * groups) store_single(d[groups - 1], 8 * groups - 8, head + 8 * pieces, columns);
  uint2 next = shift.split<Out>(d[0], to.alpha);
#pragma unroll
  for (int part = 0; part < groups / 8; part++) {
    if (64 * part >= columns) break;
    char* const own = staged + part % BUFFERS * 2048;
    if (lane == 0) {                            // this place has been read
      if (part == 0) ptx::bulk_wait_read<0>();  // by the previous tile, which may have ended with any place
      if (part > 0) ptx::bulk_wait_read<BUFFERS - 1>();
    }
    __syncwarp();  // by threads, too
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      uint2 two[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int group = 8 * part + i + j;
        const uint2 here = next;
        if (group + 1 < groups) next = shift.split<Out>(d[group + 1 < groups ? group + 1 : 0], to.alpha);
        two[j] = shift.join(here, next);
      }
      const unsigned four[4] = {two[0].x, two[0].y, two[1].x, two[1].y};
      ptx::stmatrix(own + lane % 16 * 128 + ((i + lane / 16) ^ lane % 8) * 16, four);
    }
    if (8 * part + 8 <= pieces) {
      ptx::fence_proxy_async();
      __syncwarp();
      if (lane == 0) ptx::tensor_store(c, x + head + 64 * part, row, own);
    } else {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int line = lane / 8 + 4 * i, unit = lane % 8, left = columns - head - 64 * part - 8 * unit;
        const char* const eight = own + line * 128 + (unit ^ line % 8) * 16;
        lines::Bits* const of_row = corner + (long long)line * to.pitch + head + 64 * part + 8 * unit;
        if (line >= rows) continue;
        if (left >= 8)
          *reinterpret_cast<uint4*>(of_row) = *reinterpret_cast<const uint4*>(eight);
        else if (columns < 8 * groups)
          for (int j = 0; j < left; j++) of_row[j] = reinterpret_cast<const lines::Bits*>(eight)[j];
      }
    }
    if (lane == 0) ptx::bulk_commit();  // empty if threads have stored
  }
}
