// Part of kernel.cu: c whose rows start anywhere.

constexpr int STAGED_BYTES = 2304;  // of a warp: 16 rows of 64 columns of c, and the last unit of those before

// As lines::store, for rows that all start at the same place in a piece of 16 bytes: whole pieces are stored as such,
// eight of four rows at a time. A unit is eight columns of a row in shared memory, and a piece has parts of two units.
struct Staged {
  char* memory;

  __device__ __forceinline__ char* before(int row) const { return memory + 2048 + row * 16; }
  // Columns x and on, where 64 * part is the first one that lies staged.
  __device__ __forceinline__ char* at(int part, int row, int x) const {
    char* const unit = x < 64 * part ? before(row) : memory + row * 128 + (x / 8 % 8 ^ row % 8) * 16;
    return unit + x % 8 * 2;
  }
};

template <int groups>
__device__ __forceinline__ void store_pieces(const float (&d)[groups][4], const sums::Matrix<Out>& to, Staged staged,
                                             int row, int column) {
  const int lane = threadIdx.x % 32, rows = min(to.m - row, 16), columns = min(to.n - column, 8 * groups);
  lines::Bits* const corner = reinterpret_cast<lines::Bits*>(to.c) + (long long)row * to.pitch + column;
  const int head = -int(reinterpret_cast<size_t>(corner) / 2) & 7, pieces = max(columns - head, 0) / 8;
  auto store_single = [&](int part, int first, int last) {  // columns of all rows: eight at most
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int line = lane % 16, x = first + lane / 16 + 2 * i;
      if (line < rows && x < last)
        corner[(long long)line * to.pitch + x] = *reinterpret_cast<const lines::Bits*>(staged.at(part, line, x));
    }
  };
#pragma unroll
  for (int part = 0; part < groups / 8; part++) {
    if (64 * part >= columns) break;
    __syncwarp();  // all have read the part before
    if (part > 0 && lane < 16)
      *reinterpret_cast<uint4*>(staged.before(lane)) = *reinterpret_cast<const uint4*>(staged.at(0, lane, 56));
    __syncwarp();
    sums::stage<Out>(d, 8 * part, to.alpha, staged.memory);
    __syncwarp();
    if (part == 0) store_single(part, 0, min(head, columns));
    const int unit = 8 * part + lane % 8, piece = unit - (head > 0), last_row = piece < pieces ? rows : 0;
    lines::Bits* const c = corner + (long long)(lane / 8) * to.pitch + head + 8 * piece;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int line = lane / 8 + 4 * i;
      const lines::Pieces both{*reinterpret_cast<const uint4*>(staged.at(part, line, 8 * max(piece, 0))),
                               *reinterpret_cast<const uint4*>(staged.at(part, line, 8 * unit))};
      if (line < last_row && piece >= 0)
        *reinterpret_cast<uint4*>(c + 4ll * i * to.pitch) = lines::aligned(both, head, 8);
    }
    if (64 * part + 64 >= columns) store_single(part, head + 8 * pieces, columns);
  }
}
