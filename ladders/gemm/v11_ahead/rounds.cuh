// Part of kernel.cu: tiles of several rounds.
#include "places.cuh"

// A warpgroup computes the transpose of c: ROWS rows of c, and 64 columns, or 128 if PAIRS is 2. A block processes tile
// after tile, while its loads run ahead. It stores a tile in pieces, which pass through a few buffers. The pieces of
// the last tile are staged where the stages were, as those are no longer needed.

// The mbarriers of pieces of c of each warpgroup: written by it, and read by the copy engine.
struct Pieces {
  ptx::mbarrier full[WARPGROUPS], free[WARPGROUPS];
  ptx::mbarrier done;  // all products of the block

  __device__ __forceinline__ void init() {
    for (int i = 0; i < WARPGROUPS; i++) ptx::mbarrier_init(full + i, 4), ptx::mbarrier_init(free + i, 1);
    ptx::mbarrier_init(&done, WARPGROUPS * 4);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_rounds(const __grid_constant__ ptx::TensorMap a, const __grid_constant__ ptx::TensorMap b,
                const __grid_constant__ ptx::TensorMap c, int m, int n, int k, int batch, float alpha) {
  extern __shared__ __align__(1024) char memory[];  // stages; pieces of c
  __shared__ Ring ring;
  __shared__ Pieces out;
  const int rank = SHARE > 1 ? ptx::cluster_rank() : 0, clusters = gridDim.x / SHARE;
  const int down = rank % SHARE_B, beside = rank / SHARE_B;  // place of this block in the cluster
  const Places tiles{(m + SHARE_B * ROWS - 1) / (SHARE_B * ROWS), (n + SHARE_A * COLUMNS - 1) / (SHARE_A * COLUMNS)};
  const int count = tiles.rows * tiles.columns * batch;
  // The odd rows (entry 1) begin 8 terms before the first k, so that their boxes of a begin at multiples of 32 bytes.
  // Beyond its operands, the copy engine writes zeros.
  auto shift_of = [=](int entry) { return HALVES ? entry * 8 : 0; };
  int tile = blockIdx.x / SHARE, row, column, entry;
  tiles.find(tile, rank, row, column, entry);
  Stage stage;
  int at = -shift_of(entry), step = 0;  // of a thread that loads
  // Requests stages of a or b, until there are no more or `last` of them have been requested.
  auto load_until = [&](auto which, int last) {
    constexpr bool is_a = decltype(which)::value;
#pragma unroll 1
    for (; step < last && tile < count; step++, stage.next()) {
      ptx::mbarrier* const full = (is_a ? ring.full_a : ring.full_b) + stage.index;
      char* const to = memory + stage.index * STAGE_BYTES;
      if (step >= STAGES) ptx::mbarrier_wait(ring.empty + stage.index, stage.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, is_a ? A_BYTES : B_BYTES);
      if (is_a) {
        if constexpr (SHARE_A > 1) {  // the blocks beside each other load a part each
          const int lines = beside * (ROWS / SHARE_A), mask = A_MASK << down;
          ptx::tensor_load_multicast(to + lines * 128, a, at, row + lines, entry, full, mask);
        } else {
          ptx::tensor_load(to, a, at, row, entry, full);
        }
      } else {
        const int lines = down * (64 / SHARE_B);  // of each box, which the blocks below each other load together
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 64) {
          char* const box = to + A_BYTES + j / 64 * BOX_BYTES + lines * 128;
          const int x = B_TURNED ? at : column + j, y = lines + (B_TURNED ? column + j : at);
          if constexpr (SHARE_B > 1)
            ptx::tensor_load_multicast(box, b, x, y, HALVES ? 0 : entry, full, B_MASK << beside * SHARE_B);
          else
            ptx::tensor_load(box, b, x, y, HALVES ? 0 : entry, full);
        }
      }
      at += TILE_K;
      if (at < k) continue;
      tile += clusters;
      tiles.find(tile, rank, row, column, entry);
      at = -shift_of(entry);
    }
  };
  auto start = [&](auto which) {
    constexpr bool is_a = decltype(which)::value;
    if (!is_a) load_until(which, AHEAD);
    ptx::grid_wait();
    load_until(which, STAGES);
  };
  constexpr std::true_type of_a;
  constexpr std::false_type of_b;
  if (threadIdx.x == LOADER_OF_A * 32) {
    ptx::tensor_prefetch(a);
    ring.init_a();
    if (SHARE == 1) start(of_a);
  } else if (threadIdx.x == LOADER_OF_B * 32) {
    ptx::tensor_prefetch(b);
    ring.init_b();
    if (SHARE == 1) start(of_b);
  } else if (threadIdx.x == 0) {
    ptx::tensor_prefetch(c);
    out.init();
    ring.init_empty();
  }
  __syncwarp();                        // the lanes of a warp reach the barrier together
  __syncthreads();                     // the mbarriers are initialised
  if (SHARE > 1) ptx::cluster_sync();  // those of the other blocks, too
  ptx::grid_launch_dependents();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  if (warpgroup < WARPGROUPS) {
    if constexpr (PAIRS > 1) ptx::setmaxnreg_inc<232>();
    const int lane = threadIdx.x % 32;
    auto release = [&](int index) {
      if constexpr (SHARE > 1) {
        // Blocks below and beside this one fill its stages, and it fills theirs.
        const int other = lane - SHARE_B + (lane - SHARE_B >= beside);
        const int to = lane < SHARE_B ? beside * SHARE_B + lane : other * SHARE_B + down;
        if (lane < SHARE_A + SHARE_B - 1) ptx::mbarrier_arrive_cluster(ring.empty + index, to);
      } else {
        if (lane == 0) ptx::mbarrier_arrive(ring.empty + index);
      }
    };
    char* const lines = memory + STAGES * STAGE_BYTES + warpgroup * (BUFFERS * PIECE * 128);
    int pieces = 0;  // of all tiles
    for (; tile < count; tile += clusters) {
      float d[PAIRS][GROUPS][4];
      int before = 0;  // the stage of the previous step
      tiles.find(tile, rank, row, column, entry);
      const int steps = (k + shift_of(entry) + TILE_K - 1) / TILE_K;
#pragma unroll 1
      for (int step = 0; step < steps; step++, stage.next()) {
        const char* const a_tile = memory + stage.index * STAGE_BYTES;
        const auto left =
            ptx::matrix_descriptor_128b(a_tile + A_BYTES + warpgroup * PAIRS * BOX_BYTES, BOX_BYTES, 1024);
        const auto right = ptx::matrix_descriptor_128b(a_tile, A_BYTES, 1024);
        constexpr int next_left = B_TURNED ? 32 : 2048, next_right = 32;  // bytes to the next 16 of k
        ptx::mbarrier_wait(ring.full_b + stage.index, stage.parity);
        ptx::mbarrier_wait(ring.full_a + stage.index, stage.parity);
        ptx::wgmma_fence();
#pragma unroll
        for (int j = 0; j < TILE_K / 16; j++)
#pragma unroll
          for (int i = 0; i < PAIRS; i++)
            ptx::wgmma_any_width<ROWS, Operand, !B_TURNED, false>(d[i],
                                                                  left + (i * BOX_BYTES >> 4) + j * (next_left >> 4),
                                                                  right + j * (next_right >> 4), step > 0 || j > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();  // the previous step is complete: its stage may be filled again
        if (step > 0) release(before);
        before = stage.index;
      }
#pragma unroll
      for (int i = 0; i < PAIRS; i++) ptx::wgmma_wait<0>(d[i]);
      release(before);

      const bool last = tile + clusters >= count;  // the stages are not used again, and have room for all of c
      if (last) {
        if (lane == 0) ptx::mbarrier_arrive(&out.done);
        ptx::mbarrier_wait(&out.done, 0);
      }
#pragma unroll
      for (int i = 0; i < PAIRS * (ROWS / PIECE); i++) {
        const int pair = i % PAIRS, piece = i / PAIRS;
        char* to = memory + (warpgroup * PAIRS * (ROWS / PIECE) + i) * (PIECE * 128);
        if (!last) {
          to = lines + pieces % BUFFERS * (PIECE * 128);
          if (threadIdx.x % 128 == 0) {
            ptx::bulk_wait_read<BUFFERS - 1>();  // an earlier copy has read this buffer
            ptx::mbarrier_arrive(out.free + warpgroup);
          }
          __syncwarp();
          ptx::mbarrier_wait(out.free + warpgroup, pieces % 2);
        }
        stage_rows<PIECE / 8>(d[pair], piece * (PIECE / 8), alpha, to);
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(out.full + warpgroup);
        ptx::mbarrier_wait(out.full + warpgroup, pieces % 2);  // for all warps: none may arrive twice in a phase
        if (threadIdx.x % 128 == 0) {
          ptx::tensor_store(c, column + 64 * (warpgroup * PAIRS + pair), row + piece * PIECE, entry, to);
          ptx::bulk_commit();
        }
        pieces++;
      }
    }
    if (threadIdx.x % 128 == 0) ptx::bulk_wait_read<0>();
  } else {
    if constexpr (PAIRS > 1) ptx::setmaxnreg_dec<40>();
    if (threadIdx.x == LOADER_OF_A * 32) {
      if (SHARE > 1) start(of_a);
      load_until(of_a, 1 << 30);
    } else if (threadIdx.x == LOADER_OF_B * 32) {
      if (SHARE > 1) start(of_b);
      load_until(of_b, 1 << 30);
    }
  }
  if (SHARE > 1) {  // others may still write to this block
    __syncwarp();
    ptx::cluster_sync();
  }
}
