// Part of kernel.cu: two warps of a block start the copy engine, one for a and one for b, and a third one gives stages
// back.

struct Loads {
  const ptx::TensorMap &a, &b;
  char* memory;
  Ring& ring;
  const Places& places;
  int rank, clusters, count, k;

  struct Progress {
    Stage stage;
    int step = 0, tile, row, column, entry, at;
  };

  __device__ __forceinline__ void begin(Progress& p, int tile) const {
    p.tile = tile;
    places.find(tile, rank, p.row, p.column, p.entry);
    p.at = -shift_of(p.entry);
  }

  // Requests stages of a or b, until there are no more or `last` of them have been requested.
  template <bool is_a>
  __device__ __forceinline__ void until(Progress& p, int last) const {
    const int down = rank % SHARE_B, beside = rank / SHARE_B;  // place of this block in the cluster
#pragma unroll 1
    for (; p.step < last && p.tile < count; p.step++, p.stage.next()) {
      ptx::mbarrier* const full = (is_a ? ring.full_a : ring.full_b) + p.stage.index;
      char* const to = memory + p.stage.index * STAGE_BYTES;
      if (p.step >= STAGES) ptx::mbarrier_wait(ring.empty + p.stage.index, p.stage.parity ^ 1);
      if (ptx::elect()) {
        ptx::mbarrier_arrive_expect_tx(full, is_a ? A_BYTES : B_BYTES);
        if constexpr (is_a) {
          if constexpr (SHARE_A > 1) {  // the blocks beside each other load a part each
            const int lines = beside * (ROWS / SHARE_A), mask = A_MASK << down;
            ptx::tensor_load_multicast(to + lines * 128, a, p.at, p.row + lines, p.entry, full, mask);
          } else {
            ptx::tensor_load(to, a, p.at, p.row, p.entry, full);
          }
        } else {
          const int lines = down * (64 / SHARE_B);  // of each box, which the blocks below each other load together
          const int entry = HALVES ? 0 : p.entry;
#pragma unroll
          for (int j = 0; j < COLUMNS; j += 64) {
            char* const box = to + A_BYTES + j / 64 * BOX_BYTES + lines * 128;
            const int x = B_TURNED ? p.at : p.column + j, y = lines + (B_TURNED ? p.column + j : p.at);
            if constexpr (SHARE_B > 1)
              ptx::tensor_load_multicast(box, b, x, y, entry, full, B_MASK << beside * SHARE_B);
            else
              ptx::tensor_load(box, b, x, y, entry, full);
          }
        }
      }
      p.at += TILE_K;
      if (p.at >= k) begin(p, p.tile + clusters);
    }
  }

  template <bool is_a>
  __device__ __forceinline__ void start(Progress& p) const {
    if (!is_a) until<is_a>(p, AHEAD);
    ptx::grid_wait();
    until<is_a>(p, 1);  // products can begin
  }

  // When this block has read a stage, tells the blocks that fill it: those below and beside this one, and itself. The
  // warps that multiply do not do that themselves, because arriving at another block takes them longer than a short
  // step. Stages that nobody fills again are not given back, so a block's loads await everything that arrives at it,
  // and it may end before the others.
  __device__ __forceinline__ void give_back() const {
    const int lane = threadIdx.x % 32, down = rank % SHARE_B, beside = rank / SHARE_B;
    const int other = lane - SHARE_B + (lane - SHARE_B >= beside);
    const int to = lane < SHARE_B ? beside * SHARE_B + lane : other * SHARE_B + down;
    int left = -STAGES;
    for (int tile = blockIdx.x / SHARE; tile < count; tile += clusters) left += steps_of(places, tile, rank, k);
    Stage stage;
#pragma unroll 1
    for (; left > 0; left--, stage.next()) {
      ptx::mbarrier_wait(ring.read + stage.index, stage.parity);
      if (lane < SHARE_A + SHARE_B - 1) ptx::mbarrier_arrive_cluster(ring.empty + stage.index, to);
    }
  }
};
