// attention/v9_final: attention/v8_wgmma for the lengths that come: blocks that stay, no maximum in the loop, odd
// queries apart.
//
// Idea      Products and powers cost the same at D = 64, so what counts is that nothing else does. Powers are taken of
//           scores less a reference, the largest score of a row's first block of keys, which stays: the loop has no
//           maximum, no exchange between lanes and no rescaling, only a vote whether all powers still fit halves; if
//           not, the reference is raised. A block stays on its multiprocessor and takes item after item, three tiles of
//           64 queries each, one for each of three warpgroups; the first scores of an item are made beside the last
//           values of the one before. One warp copies, reckons what is next, and tells all others, as a division takes
//           longer than a row of products. Images have a token more than patches, so T is a multiple of 64 and 1, or 5:
//           these few queries go to three warps that have nothing else to do. Keys are padded to 16 only: blocks of one
//           size, and a shorter last one that the compiler knows.
// Layout    as attention/v8_wgmma, in boxes of BLOCK keys, and of 192, 16 and 8 queries. Results go to where the warp's
//           queries were, and from there by tensor copies of 16 rows.
// Mapping   a block on each multiprocessor: warpgroups 0 to 2 multiply, in turn; warp 12 copies; warps 13 to 15 do the
//           tail, each every third 16 keys. Item i -> block i % blocks; a head's items follow each other, and change
//           places from round to round, so that no block has all the short ones.
// Roofline  32 x 12 heads of 1,025 tokens of 64: 103 GFLOP, 0.13 ms at 800 TFLOP/s; 403 M powers, 16 a clock and
//           multiprocessor: 0.10 ms. 197 tokens: 39 MB, 0.009 ms at 4.3 TB/s.
// Gain      over attention/v8_wgmma: 2. What a multiprocessor needs for 64 x 64 scores, products and powers together,
// is
//           some 345 clocks in a loop of nothing else, wherever the blocks end: neither pipe is full then.
// Limits    halves; sm_90a. With D = 128, a mask or more than 8 odd queries, the last tile is padded instead.
// Hazards   As attention/v8_wgmma. Beyond them: the turn goes round those warpgroups that have a tile in this item or
// in
//           the one before, as their last products are made in the same round. No branch may lie between the products
//           of a group, or the compiler makes them wait for each other (ptxas tells, C7510 to C7519); and too few
//           registers do the same, which is why blocks are shorter where a tail needs some. A place of queries is free
//           when results have been read from it. A score that is hidden times a negative scale must become -inf, too.
// Source    J. Shah et al., "FlashAttention-3", arXiv:2407.08608; PTX ISA, "wgmma", "setmaxnreg", "movmatrix".
#include "rows.cuh"
#include "tail.cuh"

// Where boxes of q, k, v and o begin: heads follow each other along x or along z of their tensor maps.
struct Heads {
  int each, part;  // heads to an entry of z, and how far k lies behind q along x, and v behind k
  __device__ __forceinline__ int x(int head) const { return head % each * D; }
  __device__ __forceinline__ int z(int head) const { return head / each; }
};

constexpr int PARTS = D > 64 ? D / 64 : 1;  // boxes of 64 columns beside each other
constexpr int KEYS_BYTES = PARTS * BLOCK * 128, QUERIES_BYTES = PARTS * GROUP_COUNT * 64 * 128;
constexpr int READERS = GROUP_COUNT * 4 + (TAIL ? TAIL_WARPS : 0);  // warps
constexpr int TAIL_BYTES = TAIL ? FEW * 128 : 0;

template <int SIZE>
struct Ring {  // a stage of a ring, and the parity of its phase
  int stage = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == SIZE) stage = 0, parity ^= 1;
  }
};

// An item: GROUP_COUNT tiles of 64 queries of a head, one for each warpgroup. A head's last item may have less, and has
// its tail; so that no block gets only those, items of a head change places from round to round.
struct Items {
  int tiles, of_head, count;
  __device__ __forceinline__ Items(int T, int heads) {
    tiles = TAIL ? T / 64 : (T + 63) / 64;
    of_head = (tiles + GROUP_COUNT - 1) / GROUP_COUNT;
    count = heads * of_head;
  }
  __device__ __forceinline__ int head(int item) const { return item / of_head; }
  __device__ __forceinline__ int first(int item) const {
    return (item % of_head + item / of_head * of_head / (int)gridDim.x) % of_head * GROUP_COUNT;
  }
  __device__ __forceinline__ int groups(int item) const { return min(GROUP_COUNT, tiles - first(item)); }
  __device__ __forceinline__ bool tail(int item) const { return TAIL && first(item) + GROUP_COUNT >= tiles; }
};

struct Item {               // as the producer tells the others, so that nobody else divides
  int x, z, first, groups;  // where its head lies; its first tile, and how many; of the end there are none
};

template <int N>
struct Keys {  // of a block, as a type
  static constexpr int count = N;
};

struct Barriers {
  ptx::mbarrier given, taken;  // states of the tail
  ptx::mbarrier full[STAGES], empty[STAGES], q_full[Q_STAGES], q_empty[Q_STAGES], turn[GROUP_COUNT];
};

// Blocks of keys that the queries of so many tiles see.
__device__ __forceinline__ int blocks_for(int T, int tiles) {
  const int keys = CAUSAL ? min(T, tiles * 64) : T;
  return (keys + BLOCK - 1) / BLOCK;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention(const __grid_constant__ ptx::TensorMap q_map, const __grid_constant__ ptx::TensorMap k_map,
              const __grid_constant__ ptx::TensorMap v_map, const __grid_constant__ ptx::TensorMap o_map,
              const __grid_constant__ ptx::TensorMap tail_map, unsigned* o, int T, int heads, int each, int part,
              float scale) {
  extern __shared__ __align__(1024) char memory[];  // stages of keys and values; queries, and results in their place
  __shared__ Barriers barriers;
  __shared__ Item told[Q_STAGES];
  const Items items(T, heads);
  const Heads lie{each, part};
  const int lane = threadIdx.x % 32;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // the compiler sees that a warp agrees
  char* const queries = memory + STAGES * 2 * KEYS_BYTES;
  char* const few = queries + Q_STAGES * QUERIES_BYTES;  // queries of the tail, and its states
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(barriers.full + i, 1);
      ptx::mbarrier_init(barriers.empty + i, READERS);
    }
    for (int i = 0; i < Q_STAGES; i++) {
      ptx::mbarrier_init(barriers.q_full + i, 1);
      ptx::mbarrier_init(barriers.q_empty + i, READERS);
    }
    for (int i = 0; i < GROUP_COUNT; i++) ptx::mbarrier_init(barriers.turn + i, 4);
    ptx::mbarrier_init(&barriers.given, TAIL_WARPS - 1);
    ptx::mbarrier_init(&barriers.taken, 1);
    ptx::fence_proxy_async();
  }
  __syncthreads();

  Ring<STAGES> ring;
  Ring<Q_STAGES> q_ring;
  if (group == GROUP_COUNT) {  // the producer
    ptx::setmaxnreg_dec<FEWER>();
    if (threadIdx.x == GROUP_COUNT * 128) {
      ptx::tensor_prefetch(q_map);
      ptx::tensor_prefetch(k_map);
      ptx::tensor_prefetch(v_map);
      ptx::grid_wait();
      for (int item = blockIdx.x; item < items.count; item += gridDim.x, q_ring.next()) {
        const int head = items.head(item), x = lie.x(head), z = lie.z(head), first = items.first(item);
        const int blocks = blocks_for(T, first + items.groups(item));
        ptx::mbarrier* const ready = barriers.q_full + q_ring.stage;
        ptx::mbarrier_wait(barriers.q_empty + q_ring.stage, q_ring.parity ^ 1);
        told[q_ring.stage] = {x, z, first, items.groups(item)};
        ptx::mbarrier_arrive_expect_tx(ready, QUERIES_BYTES + (items.tail(item) ? TAIL_BYTES : 0));
        if (items.tail(item))
          ptx::tensor_load(few + q_ring.stage * TAIL_BYTES, tail_map, x, items.tiles * 64, z, ready);
        for (int i = 0; i < PARTS; i++)
          ptx::tensor_load(queries + q_ring.stage * QUERIES_BYTES + i * (GROUP_COUNT * 64 * 128), q_map, x + 64 * i,
                           first * 64, z, ready);
        for (int j = 0; j < blocks; j++, ring.next()) {
          ptx::mbarrier* const come = barriers.full + ring.stage;
          char *const keys = memory + ring.stage * 2 * KEYS_BYTES, *const values = keys + KEYS_BYTES;
          ptx::mbarrier_wait(barriers.empty + ring.stage, ring.parity ^ 1);
          ptx::mbarrier_arrive_expect_tx(come, 2 * KEYS_BYTES);
          for (int i = 0; i < PARTS; i++) {
            ptx::tensor_load(keys + i * (BLOCK * 128), k_map, x + lie.part + 64 * i, j * BLOCK, z, come);
            ptx::tensor_load(values + i * (BLOCK * 128), v_map, x + 2 * lie.part + 64 * i, j * BLOCK, z, come);
          }
        }
      }
      ptx::mbarrier_wait(barriers.q_empty + q_ring.stage, q_ring.parity ^ 1);
      told[q_ring.stage] = {};
      ptx::mbarrier_arrive(barriers.q_full + q_ring.stage);
    }
    if (TAIL && threadIdx.x >= GROUP_COUNT * 128 + 32) {
      typedef float State[STATE][32];
      State* const states = reinterpret_cast<State*>(few + Q_STAGES * TAIL_BYTES);
      const int warp = threadIdx.x / 32 - GROUP_COUNT * 4 - 1, blocks = blocks_for(T, 0);
      int parity = 0, share = warp;
      auto arrive = [&](ptx::mbarrier* barrier) {
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(barrier);
      };
      for (;; q_ring.next()) {
        ptx::mbarrier_wait(barriers.q_full + q_ring.stage, q_ring.parity);
        const Item item = told[q_ring.stage];
        if (item.groups == 0) break;
        const bool mine = item.first + GROUP_COUNT >= items.tiles;
        Tail tail;
        if (mine) tail.start(few + q_ring.stage * TAIL_BYTES);
        arrive(barriers.q_empty + q_ring.stage);
        for (int j = 0; j < blocks; j++, ring.next()) {
          const char *const keys = memory + ring.stage * 2 * KEYS_BYTES, *const values = keys + KEYS_BYTES;
          ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
          const int valid = mine ? min(T - j * BLOCK, BLOCK) : 0;
#pragma unroll 1
          for (int at = share * 16; at < valid; at += TAIL_WARPS * 16) tail.step(keys, values, at, valid - at, scale);
          if (++share == TAIL_WARPS) share = 0;  // another one has the odd 16 keys of the next block
          arrive(barriers.empty + ring.stage);
        }
        if (!mine) continue;
        if (warp > 0) {
          ptx::mbarrier_wait(&barriers.taken, parity ^ 1);
          tail.give(states[warp - 1]);
          arrive(&barriers.given);
        } else {
          ptx::mbarrier_wait(&barriers.given, parity);
          for (int i = 0; i < TAIL_WARPS - 1; i++) tail.take(states[i]);
          arrive(&barriers.taken);
          const int row = items.tiles * 64;
          const long long at = ((long long)item.z * T + row) * each * D + item.x;
          tail.put(o + at / 2, T - row, each * (D / 2));
        }
        parity ^= 1;
      }
    }
    return;
  }

  ptx::setmaxnreg_inc<MORE>();
  Rows rows;
#pragma unroll
  for (int i = 0; i < D / 8; i++) rows.o[i][0] = rows.o[i][1] = rows.o[i][2] = rows.o[i][3] = 0.0f;
  int turn = 0;     // parity of the turns of this warpgroup
  int stored = -1;  // the stage of queries from which results are on their way
  const int warp_rows = threadIdx.x / 32 % 4 * 16;
  const unsigned long long values_at = ptx::matrix_descriptor_128b(memory + KEYS_BYTES, BLOCK * 128, 1024);
  const unsigned long long keys_at = ptx::matrix_descriptor_128b(memory, 16, 1024);
  const unsigned long long queries_at = ptx::matrix_descriptor_128b(queries + group * 8192, 16, 1024);

  auto arrive = [&](ptx::mbarrier* barrier) {
    if (lane == 0) ptx::mbarrier_arrive(barrier);
  };
  auto wait_turn = [&]() {
    if (TURNS) ptx::mbarrier_wait(barriers.turn + group, turn ^ (group == 0));
  };
  auto pass_turn = [&](int groups) {  // to the next of so many warpgroups
    if (TURNS) {
      __syncwarp();  // all lanes have had their turn
      arrive(barriers.turn + (group + 1 < groups ? group + 1 : 0));
    }
    turn ^= 1;
  };
  auto release = [&]() {
    if (stored < 0) return;
    if (lane == 0) {
      ptx::bulk_wait_read<0>();
      ptx::mbarrier_arrive(barriers.q_empty + stored);
    }
    stored = -1;
  };
  auto skip = [&](int blocks) {  // keys that this warpgroup does not need
    for (; blocks > 0; blocks--, ring.next()) {
      ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
      arrive(barriers.empty + ring.stage);
    }
  };
  int first, groups;  // of the item in hand
  auto look = [&]() {
    ptx::mbarrier_wait(barriers.q_full + q_ring.stage, q_ring.parity);
    first = told[q_ring.stage].first;
    groups = told[q_ring.stage].groups;
  };
  auto skip_items = [&](int before) {  // to the next item in which this warpgroup has a tile; how many had one before
    while (groups > 0 && group >= groups) {
      __syncwarp();  // all lanes have looked
      arrive(barriers.q_empty + q_ring.stage);
      skip(blocks_for(T, first + groups));
      before = groups;
      q_ring.next();
      look();
    }
    return before;
  };
  auto scores = [&]() {
    rows.times_keys<BLOCK>(queries_at + q_ring.stage * (QUERIES_BYTES >> 4),
                           keys_at + ring.stage * (2 * KEYS_BYTES >> 4));
  };
  auto start = [&](int before) {  // an item's first scores, with nothing beside them
    ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
    wait_turn();
    ptx::wgmma_fence();
    scores();
    ptx::wgmma_commit();
    pass_turn(max(before, groups));  // some make the last products of the item before in the same round
    ptx::wgmma_wait<0>(rows.s);
  };

  // The next block's scores, and beside them the values of the block before, in one go.
  auto advance = [&]() {
    const int before = ring.stage;
    ring.next();
    return before;
  };
  auto round = [&](auto keys, int before, bool add, int groups) {
    ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
    wait_turn();
    ptx::wgmma_fence();
    rows.times_keys<keys.count>(queries_at + q_ring.stage * (QUERIES_BYTES >> 4),
                                keys_at + ring.stage * (2 * KEYS_BYTES >> 4));
    rows.plus_values<BLOCK>(values_at + before * (2 * KEYS_BYTES >> 4), add);
    ptx::wgmma_commit();
    pass_turn(groups);
    ptx::wgmma_wait<0>(rows.s);
    ptx::wgmma_wait<0>(rows.o);
    arrive(barriers.empty + before);
  };

  look();
  skip_items(0);
  if (groups > 0) start(0);
  while (groups > 0) {
    const int tile = first + group, blocks = blocks_for(T, tile + 1), all_blocks = blocks_for(T, first + groups);
    const int row = tile * 64 + warp_rows + lane / 4;  // this thread's first
    // The block that scores are there of is in `ring`; that of the values before it is `before`.
    if (blocks == 1 || CAUSAL) rows.hide<BLOCK>(T, row);
    rows.begin<BLOCK>(scale);
    rows.go_on<BLOCK>(scale);
    release();
    const int plain = LAST == BLOCK ? blocks : blocks - 1;  // a shorter last block is apart
    int j = 1;
    for (; j < plain; j++) {
      const int before = advance();
      round(Keys<BLOCK>(), before, j > 1, groups);
      const int from = j * BLOCK;
      if (CAUSAL ? from + BLOCK > min(T, tile * 64) : LAST == BLOCK && from + BLOCK > T)
        rows.hide<BLOCK>(T - from, row - from);
      rows.go_on<BLOCK>(scale);
    }
    if (LAST != BLOCK) {
      const int before = advance();
      round(Keys<LAST>(), before, j > 1, groups);
      rows.hide<LAST>(T - j * BLOCK, row - j * BLOCK);
      rows.go_on<LAST>(scale);
    }

    const int before = ring.stage, done = q_ring.stage;
    const unsigned long long v = values_at + before * (2 * KEYS_BYTES >> 4);
    ring.next();
    q_ring.next();
    const int before_groups = groups;
    look();
    const bool joint = !CAUSAL && group < groups;
    if (joint) {
      ptx::mbarrier_wait(barriers.full + ring.stage, ring.parity);
      wait_turn();
      ptx::wgmma_fence();
      scores();
      rows.plus_values<LAST>(v, blocks > 1);
      ptx::wgmma_commit();
      pass_turn(max(before_groups, groups));
      ptx::wgmma_wait<0>(rows.s);
      ptx::wgmma_wait<0>(rows.o);
    } else {
      wait_turn();
      ptx::wgmma_fence();
      rows.plus_values<LAST>(v, blocks > 1);
      ptx::wgmma_commit();
      pass_turn(max(before_groups, groups));
      ptx::wgmma_wait<0>(rows.o);
    }
    arrive(barriers.empty + before);

    char* const out = queries + done * QUERIES_BYTES + group * 8192 + warp_rows * 128;
    rows.put(out);
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0 && tile * 64 + warp_rows < T) {
      for (int i = 0; i < PARTS; i++)
        ptx::tensor_store(o_map, told[done].x + 64 * i, tile * 64 + warp_rows, told[done].z,
                          out + i * (GROUP_COUNT * 64 * 128));
      ptx::bulk_commit();
    }
    __syncwarp();
    stored = done;
    if (!joint) {
      release();
      skip(all_blocks - blocks);
      const int before = skip_items(before_groups);
      if (groups > 0) start(before);
    }
  }
  if (lane == 0) ptx::bulk_wait_read<0>();
}
