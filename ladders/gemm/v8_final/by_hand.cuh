// Part of kernel.cu: loads by threads.

// A thread's four parts of a box of 64 lines of 64 elements, while they are being loaded. A part is 8 elements. The
// lines of the parts are 16 apart, and all of them begin at the same place in a piece.
struct Box {
  lines::Pieces part[4];
  long long start;  // element of the first part
  int count, line;  // existing elements of a part, its line
  bool last;        // the box may contain the operand's last elements

  __device__ __forceinline__ int count_of(const Lines& x, int i) const { return line + 16 * i < x.lines ? count : 0; }
  __device__ __forceinline__ void read(const Lines& x, int at_x, int at_y, int entry) {
    const int place = at_x + threadIdx.x % 8 * 8;
    const long long corner = (long long)entry * x.lines * x.pitch;
    line = at_y + threadIdx.x % 128 / 8;
    start = corner + (long long)line * x.pitch + place;
    count = min(x.length - place, 8);
    last = corner + (long long)min(at_y + 63, x.lines - 1) * x.pitch + at_x + 64 > x.whole;
    const int shift = int(start) & 7, left = int(min(x.whole - start, 1ll << 30));
    const uint4* const near = reinterpret_cast<const uint4*>(x.from + (start - shift));
#pragma unroll
    for (int i = 0; i < 4; i++)
      part[i] = lines::read(near + 2 * i * x.pitch, shift, min(count_of(x, i), left - 16 * i * x.pitch));
  }
  __device__ __forceinline__ void put(const Lines& x, char* box) const {
    char* const first = box + threadIdx.x % 128 / 8 * 128 + ((threadIdx.x % 8) ^ line % 8) * 16;
#pragma unroll
    for (int i = 0; i < 4; i++)
      *reinterpret_cast<uint4*>(first + 2048 * i) = lines::aligned(part[i], int(start) & 7, count);
    if (!last) return;
#pragma unroll 1
    for (int i = 0; i < 4; i++)
      lines::add_last(reinterpret_cast<lines::Bits*>(first + 2048 * i), x.from, start + 16ll * i * x.pitch,
                      count_of(x, i), x.whole);
  }
};

// Warpgroups that load in turn, each a pair of boxes through its registers.
struct LoadsByHand {
  static constexpr int ARRIVALS = 4;  // at a stage: warps
  Lines a, b;

  __device__ __forceinline__ void prefetch() const {}
  __device__ __forceinline__ void run(char* memory, ptx::mbarrier* full, ptx::mbarrier* empty, const Tiles& tiles,
                                      int count, int rank, int first, int last) const {
    const int clusters = gridDim.x / CLUSTER;
    Stage stage;
    int row, column, entry, turn = threadIdx.x / 128 - CONSUMERS;  // stages until this warpgroup's turn
    ptx::grid_wait();
    for (int i = blockIdx.x / CLUSTER; i < count; i += clusters) {
      tiles.find(i, rank, row, column, entry);
#pragma unroll 1
      for (int at = first * TILE_K; at < last * TILE_K; at += TILE_K, stage.next()) {
        if (turn-- > 0) continue;
        turn = LOADERS - 1;
        char *const to_a = memory + stage.index * (A_BYTES + B_BYTES), *const to_b = to_a + A_BYTES;
#pragma unroll 1
        for (int j = 0; j < ROWS; j += 64) {
          Box of_a, of_b;
          of_a.read(a, A_TURNED ? row + j : at, A_TURNED ? at : row + j, entry);
          of_b.read(b, B_TURNED ? at : column + j, B_TURNED ? column + j : at, entry);
          if (j == 0) ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
          of_a.put(a, to_a + j / 64 * BOX_BYTES);
          of_b.put(b, to_b + j / 64 * BOX_BYTES);
        }
        ptx::fence_proxy_async();
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(full + stage.index);
      }
    }
  }
};
