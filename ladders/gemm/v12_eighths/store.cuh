// Part of kernel.cu: c whose rows start anywhere.

// 16 bits of a row of c that lie staged: `x` columns from the tile's first one, two parts of 64 columns at a time.
__device__ __forceinline__ const char* staged_at(const char* staged, int row, int x) {
  return staged + x / 64 % 2 * 2048 + row * 128 + (x / 8 % 8 ^ row % 8) * 16 + x % 8 * 2;
}

// As lines::store, for rows that all start at the same place in a piece of 16 bytes: whole pieces are stored as such.
// A warp stores eight pieces of four rows at a time.
template <int groups>
__device__ __forceinline__ void store_pieces(const float (&d)[groups][4], const sums::Matrix<Out>& to, char* staged,
                                             int row, int column) {
  constexpr int parts = groups / 8;
  const int lane = threadIdx.x % 32, rows = min(to.m - row, 16), columns = min(to.n - column, 8 * groups);
  lines::Bits* const corner = reinterpret_cast<lines::Bits*>(to.c) + (long long)row * to.pitch + column;
  const int head = -int(reinterpret_cast<size_t>(corner) / 2) & 7, pieces = max(columns - head, 0) / 8;
  auto store_single = [&](int first, int last) {  // elements of all rows: eight at most
    const int line = lane % 16;
    if (line >= rows) return;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int x = first + lane / 16 + 2 * i;
      if (x < last)
        corner[(long long)line * to.pitch + x] = *reinterpret_cast<const lines::Bits*>(staged_at(staged, line, x));
    }
  };
  __syncwarp();  // all have read what was there before
  sums::stage<Out>(d, 0, to.alpha, staged);
#pragma unroll
  for (int part = 0; part < parts; part++) {
    if (64 * part >= columns) break;
    if (part > 0) __syncwarp();  // all have read the part before
    if (part + 1 < parts)
      sums::stage<Out>(d, part + 1 < parts ? 8 * part + 8 : 0, to.alpha, staged + (part + 1) % 2 * 2048);
    __syncwarp();
    if (part == 0) store_single(0, min(head, columns));
    const int piece = 8 * part + lane % 8, last_row = piece < pieces ? rows : 0;
    lines::Bits* const c = corner + (long long)(lane / 8) * to.pitch + head + 8 * piece;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int line = lane / 8 + 4 * i;
      const lines::Pieces both{*reinterpret_cast<const uint4*>(staged_at(staged, line, 8 * piece)),
                               *reinterpret_cast<const uint4*>(staged_at(staged, line, 8 * piece + 8))};
      if (line < last_row) *reinterpret_cast<uint4*>(c + 4ll * i * to.pitch) = lines::aligned(both, head, 8);
    }
    if (pieces / 8 == part) store_single(head + 8 * pieces, columns);
  }
}
