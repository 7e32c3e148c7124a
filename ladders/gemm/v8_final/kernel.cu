// gemm/v8_final: gemm/v7_specialised for every shape: clusters, split sums, small tiles, odd pitches, vectors.
//
// Idea      The remaining gains are outside the main loop. Two blocks form a cluster: each loads half of the columns of
//           b that both need, for both (multicast), so that L2 delivers a third less. If there are fewer tiles than
//           multiprocessors, tiles are smaller, or a cluster shares the k of a tile and adds its sums in shared memory.
//           The copy engine requires lines that start at multiples of 16 bytes. Other operands are first copied to such
//           lines, both in one launch. If that takes longer than the product, warpgroups load them by hand: they load
//           two aligned pieces of 16 bytes for each eight elements, and shift them in registers. c is stored from
//           shared memory, for any pitch. A product with a vector uses no tensor cores: it reads the matrix once. A
//           kernel that is launched early is set up while the previous one ends, and waits before it reads. variant.py
//           chooses among all of these by a model of the time.
// Layout    as gemm/v7_specialised. The SHARE blocks of a cluster are below each other and share b: block i loads the
//           i-th part of the boxes of each tile of b. If blocks share k, each of SPLIT blocks has a part of the steps.
//           Boxes that are loaded by hand, 64 lines of 64 elements, have the layout of the engine. Copies have lines of
//           whole cache lines.
// Mapping   a block on each multiprocessor; ROWS / 64 warpgroups consume; one warp produces, or LOADERS warpgroups
//           produce by hand, with alternating stages. Tiles are processed in bands of BAND rows of clusters, column by
//           column. Vectors: a warp for a line, or a block for 64 of them.
// Roofline  m = n = k = 4096: 137 GFLOP, 0.14 ms at 990 TFLOP/s, in practice 0.175 because power lowers the clock. L2
//           delivers 32 KB for 1,024 clocks of products. 512: 3 us, most of it for the launch and the first loads.
//           Copies of odd operands: 0.034 ms at 4095.
// Gain      over gemm/v7_specialised: none at 4096, where both are as fast as cuBLAS; a factor of 2.2 at 512 and 1024;
//           support for odd sizes.
// Limits    16 bits, sm_90a. Operands that are loaded by hand need pitches below 2^24.
// Hazards   as gemm/v7_specialised. In addition: a stage is free when the consumers of both blocks have read it,
//           because each of the two blocks fills stages of both. A warp that has read a stage therefore arrives at the
//           mbarriers of both blocks. No block may exit while another one writes to it, or arrives there. This arrival
//           is relaxed, because it publishes nothing, whereas a release would be a fence of the whole GPU. An address
//           in a cluster has the rank of the block in its upper bits. A matrix descriptor has no room for them, so it
//           needs the address within the block. A kernel that is launched early must not access global memory before
//           grid_wait(): producers wait, and the others wait for them. wgmma sees the writes of threads to a stage only
//           after fence_proxy_async() by each of them. If an operand ends within a piece of 16 bytes, this piece is not
//           read as a whole.
// Source    PTX ISA, "cp.async.bulk.tensor" (multicast), "st.async", "griddepcontrol"; CUTLASS, "Efficient GEMM in
//           CUDA".
#include <mini_dnn/lines.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

// ---- The product of matrices

constexpr int CONSUMERS = ROWS / 64, CLUSTER = SHARE * SPLIT, BOX_BYTES = 64 * TILE_K * 2;  // a box: 64 rows or columns
constexpr int A_BYTES = ROWS * TILE_K * 2, B_BYTES = COLUMNS * TILE_K * 2;
constexpr int GROUPS = COLUMNS / 8, PART = GROUPS / SPLIT;  // of 8 columns; of those that a block adds up
constexpr int STAGED_BYTES = 4096;                          // of a warp
constexpr int SLOT = CONSUMERS * 128;                       // of four sums, from another block: a place for each thread
constexpr int PRODUCERS = LOADERS > 0 ? LOADERS * 128 : 32;  // threads: warpgroups that load by hand, or a warp
static_assert(TILE_K == 64 && THREADS == CONSUMERS * 128 + PRODUCERS, "consumers, then producers");
static_assert(LOADERS == 0 || (SHARE == 1 && ROWS == COLUMNS), "pairs of boxes, not multicast");
static_assert(SHARE == 1 || SPLIT == 1, "a cluster shares columns of b, or k");
static_assert(COLUMNS / 64 % SHARE == 0 && GROUPS % SPLIT == 0, "equal parts");

struct Stage {  // of the ring, and the parity of its phase
  int index = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++index == STAGES) index = 0, parity ^= 1;
  }
};

struct Tiles {
  int rows, columns;  // of tiles of a cluster, in an entry of the batch
  // BAND rows are one band; in it, tiles follow each other column by column.
  __device__ __forceinline__ void find(int i, int rank, int& row, int& column, int& entry) const {
    entry = i / (rows * columns);
    i -= entry * rows * columns;
    const int first = i / (BAND * columns) * BAND, height = min(BAND, rows - first), in_band = i - first * columns;
    row = ((first + in_band % height) * SHARE + rank % SHARE) * ROWS;
    column = in_band / height * COLUMNS;
  }
};

// The blocks of a cluster that share k hand each other parts of their sums, and each one adds up its own part.
__device__ __forceinline__ void add_up(float (&d)[GROUPS][4], float (&sum)[PART][4], float4* slots,
                                       ptx::mbarrier* landed, int rank) {
#pragma unroll
  for (int block = 0; block < SPLIT; block++) {
    if (block == rank) {
#pragma unroll
      for (int i = 0; i < PART * 4; i++) sum[i / 4][i % 4] = d[block * PART + i / 4][i % 4];
      continue;
    }
    float4* const to = ptx::cluster_shared(slots + (rank - (rank > block)) * PART * SLOT + threadIdx.x, block);
    ptx::mbarrier* const there = ptx::cluster_shared(landed, block);
#pragma unroll
    for (int i = 0; i < PART; i++) {
      const float (&four)[4] = d[block * PART + i];
      ptx::store_async(&to[i * SLOT].x, make_float4(four[0], four[1], four[2], four[3]), there);
    }
  }
  ptx::mbarrier_wait(landed, 0);
#pragma unroll
  for (int other = 0; other < SPLIT - 1; other++)
#pragma unroll
    for (int i = 0; i < PART; i++) {
      const float4 four = slots[(other * PART + i) * SLOT + threadIdx.x];
      sum[i][0] += four.x, sum[i][1] += four.y, sum[i][2] += four.z, sum[i][3] += four.w;
    }
}

// ---- Loading a and b

// One thread starts the copy engine.
struct TensorLoads {
  static constexpr int ARRIVALS = 1;  // at a stage: it expects the bytes
  const ptx::TensorMap &a, &b;

  __device__ __forceinline__ void prefetch() const {
    ptx::tensor_prefetch(a);
    ptx::tensor_prefetch(b);
  }
  __device__ __forceinline__ void run(char* memory, ptx::mbarrier* full, ptx::mbarrier* empty, const Tiles& tiles,
                                      int count, int rank, int first, int last) const {
    const int clusters = gridDim.x / CLUSTER;
    Stage stage;
    int row, column, entry;
    if (threadIdx.x % 32 != 0) return;
    ptx::grid_wait();
    for (int i = blockIdx.x / CLUSTER; i < count; i += clusters) {
      tiles.find(i, rank, row, column, entry);
#pragma unroll 1
      for (int at = first * TILE_K; at < last * TILE_K; at += TILE_K, stage.next()) {
        ptx::mbarrier* const ready = full + stage.index;
        char *const to_a = memory + stage.index * (A_BYTES + B_BYTES), *const to_b = to_a + A_BYTES;
        ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(ready, A_BYTES + B_BYTES);
#pragma unroll
        for (int j = 0; j < ROWS; j += 64)
          ptx::tensor_load(to_a + j / 64 * BOX_BYTES, a, A_TURNED ? row + j : at, A_TURNED ? at : row + j, entry,
                           ready);
#pragma unroll
        for (int j = 0; j < COLUMNS / SHARE; j += 64) {
          const int beside = j + (SHARE > 1 ? rank * (COLUMNS / SHARE) : 0);
          const int x = B_TURNED ? at : column + beside, y = B_TURNED ? column + beside : at;
          if constexpr (SHARE > 1)
            ptx::tensor_load_multicast(to_b + beside / 64 * BOX_BYTES, b, x, y, entry, ready, (1 << SHARE) - 1);
          else
            ptx::tensor_load(to_b + beside / 64 * BOX_BYTES, b, x, y, entry, ready);
        }
      }
    }
  }
};

// An operand whose lines may start anywhere. `whole` is the number of its elements in whole pieces of eight.
struct Lines {
  const lines::Bits* from;
  int lines, length, pitch;
  long long whole;
};

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

// ---- A block

template <class Loads>
__device__ __forceinline__ void product(const Loads& loads, const ptx::TensorMap* c_map, const Out* c0, Out* c, int m,
                                        int n, int k, int c_pitch, int batch, float alpha, float beta) {
  extern __shared__ __align__(1024) char memory[];  // stages; results of warps; sums of other blocks
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES], landed;
  const int rank = CLUSTER > 1 ? ptx::cluster_rank() : 0, clusters = gridDim.x / CLUSTER;
  const Tiles tiles{(m + SHARE * ROWS - 1) / (SHARE * ROWS), (n + COLUMNS - 1) / COLUMNS};
  const int count = tiles.rows * tiles.columns * batch, steps = (k + TILE_K - 1) / TILE_K;
  const int first = SPLIT > 1 ? steps * rank / SPLIT : 0, last = SPLIT > 1 ? steps * (rank + 1) / SPLIT : steps;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so the compiler knows that a warp agrees
  char* const staged = memory + STAGES * (A_BYTES + B_BYTES);
  float4* const slots = reinterpret_cast<float4*>(staged);  // blocks that split sums do not stage results
  if (threadIdx.x == CONSUMERS * 128) {
    loads.prefetch();
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, Loads::ARRIVALS);
      ptx::mbarrier_init(empty + i, CONSUMERS * 4 * SHARE);  // every warp that multiplies
    }
    ptx::mbarrier_init(&landed, 1);
    if (SPLIT > 1) ptx::mbarrier_arrive_expect_tx(&landed, (SPLIT - 1) * PART * SLOT * 16);
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();
  }
  __syncthreads();
  if (CLUSTER > 1) ptx::cluster_arrive_relaxed();
  if (SHARE > 1) ptx::cluster_wait();  // others fill this block's stages immediately, and send sums much later
  ptx::grid_launch_dependents();

  if (warpgroup >= CONSUMERS) {
    loads.run(memory, full, empty, tiles, count, rank, first, last);
    __syncwarp();
    if (SPLIT > 1) ptx::cluster_wait();
  } else {
    Stage stage;
    int row, column, entry;
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
    auto release = [&](int index) {
      if constexpr (SHARE > 1) {
        if (lane < SHARE) ptx::mbarrier_arrive_cluster(empty + index, lane);
      } else {
        if (lane == 0) ptx::mbarrier_arrive(empty + index);
      }
    };
    char* const own = staged + threadIdx.x / 32 * STAGED_BYTES;
    for (int i = blockIdx.x / CLUSTER; i < count; i += clusters) {
      float d[GROUPS][4];
      int before = 0;  // the stage of the previous step
#pragma unroll 1
      for (int step = first; step < last; step++, stage.next()) {
        const char *const a_tile = memory + stage.index * (A_BYTES + B_BYTES), *const b_tile = a_tile + A_BYTES;
        const auto left = ptx::matrix_descriptor_128b(a_tile + warpgroup * BOX_BYTES, BOX_BYTES, 1024);
        const auto right = ptx::matrix_descriptor_128b(b_tile, BOX_BYTES, 1024);
        constexpr int a_next = A_TURNED ? 2048 : 32, b_next = B_TURNED ? 32 : 2048;  // bytes to the next 16 of k
        ptx::mbarrier_wait(full + stage.index, stage.parity);
        ptx::wgmma_fence();
#pragma unroll
        for (int j = 0; j < TILE_K / 16; j++)
          ptx::wgmma_m64k16<COLUMNS, Operand, A_TURNED, !B_TURNED>(d, left + j * (a_next >> 4),
                                                                   right + j * (b_next >> 4), step > first || j > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();  // the previous step is complete: its stage may be filled again
        if (step > first) release(before);
        before = stage.index;
      }
      ptx::wgmma_wait<0>(d);
      release(before);

      tiles.find(i, rank, row, column, entry);
      const long long of_entry = (long long)entry * m * c_pitch;
      const sums::Matrix<Out> to{c0 + of_entry, c + of_entry, m, n, c_pitch, alpha, beta};
      if constexpr (SPLIT > 1) {
        float sum[PART][4];
        ptx::cluster_wait();  // the other blocks have started, and their mbarriers are initialised
        add_up(d, sum, slots, &landed, rank);
        sums::store<C_PAIRS>(sum, to, row + warp_row, column + rank * PART * 8);
      } else if constexpr (STORE == BY_TENSOR) {
        sums::store_tensor<Out>(d, *c_map, alpha, own, row + warp_row, column, entry);
      } else if constexpr (STORE == BY_ROWS) {
        lines::store(d, to, own, row + warp_row, column);
      } else {
        sums::store<C_PAIRS>(d, to, row + warp_row, column);
      }
    }
    if (STORE == BY_TENSOR && SPLIT == 1 && lane == 0) ptx::bulk_wait_read<0>();
  }
  if (CLUSTER > 1) {  // others may still write to this block
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ ptx::TensorMap a, const __grid_constant__ ptx::TensorMap b,
         const __grid_constant__ ptx::TensorMap c_map, const Out* c0, Out* c, int m, int n, int k, int c_pitch,
         int batch, float alpha, float beta) {
  if constexpr (LOADERS == 0) product(TensorLoads{a, b}, &c_map, c0, c, m, n, k, c_pitch, batch, alpha, beta);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_by_hand(const lines::Bits* a, const lines::Bits* b, const Out* c0, Out* c, int m, int n, int k, int a_pitch,
                 int b_pitch, int c_pitch, int batch, float alpha, float beta) {
  if constexpr (LOADERS > 0) {
    auto lying = [=](const lines::Bits* from, int lines, int length, int pitch) {
      return Lines{from, lines, length, pitch, (((long long)batch * lines - 1) * pitch + length) / 8 * 8};
    };
    const LoadsByHand loads{A_TURNED ? lying(a, k, m, a_pitch) : lying(a, m, k, a_pitch),
                            B_TURNED ? lying(b, n, k, b_pitch) : lying(b, k, n, b_pitch)};
    product(loads, nullptr, c0, c, m, n, k, c_pitch, batch, alpha, beta);
  }
}

// ---- Copies lines of any pitch to lines that start with a cache line, padded with zeros to a multiple of eight
// elements. One launch copies one operand or both; the blocks of the second follow those of the first. A thread has
// COPIED parts of eight elements in flight.
struct Packed {
  const lines::Bits* from;
  uint4* to;
  int lines, length, pitch, to_pitch;

  __device__ __forceinline__ int parts() const { return (length + 7) / 8; }  // of a line
  __device__ __forceinline__ int blocks() const {
    return int(((long long)lines * parts() + COPIERS * COPIED - 1) / (COPIERS * COPIED));
  }
  __device__ __forceinline__ void copy(int block) const {
    const long long first = (long long)block * (COPIERS * COPIED), end = (long long)(lines - 1) * pitch + length;
    const int first_line = int(first / parts()), in_line = int(first - (long long)first_line * parts());
    lines::Pieces found[COPIED];
    long long start[COPIED];
    int line[COPIED], part[COPIED], count[COPIED];
#pragma unroll
    for (int i = 0; i < COPIED; i++) {
      const unsigned at = unsigned(in_line) + threadIdx.x + i * COPIERS, down = at / parts();
      line[i] = first_line + int(down), part[i] = int(at - down * parts());
      start[i] = (long long)line[i] * pitch + part[i] * 8;
      count[i] = line[i] < lines ? min(length - part[i] * 8, 8) : 0;
      const int shift = int(start[i]) & 7, left = int(min(end / 8 * 8 - start[i], 8ll));
      found[i] = lines::read(reinterpret_cast<const uint4*>(from + (start[i] - shift)), shift, min(count[i], left));
    }
#pragma unroll
    for (int i = 0; i < COPIED; i++) {
      uint4* const eight = to + (long long)line[i] * (to_pitch / 8) + part[i];
      if (count[i] > 0) *eight = lines::aligned(found[i], int(start[i]) & 7, count[i]);
      lines::add_last(reinterpret_cast<lines::Bits*>(eight), from, start[i], count[i], end / 8 * 8);
    }
  }
};

extern "C" __global__ void __launch_bounds__(COPIERS)
    repitch(const lines::Bits* __restrict__ a, uint4* a_to, int a_lines, int a_length, int a_pitch, int a_to_pitch,
            const lines::Bits* __restrict__ b, uint4* b_to, int b_lines, int b_length, int b_pitch, int b_to_pitch) {
  const Packed of_a{a, a_to, a_lines, a_length, a_pitch, a_to_pitch};
  const Packed of_b{b, b_to, b_lines, b_length, b_pitch, b_to_pitch};
  const int block = blockIdx.x, of_b_from = of_a.blocks();
  ptx::grid_wait();
  if (block < of_b_from)
    of_a.copy(block);
  else
    of_b.copy(block - of_b_from);
}

// ---- The product of a matrix and a vector: for each line, the sum over k of x[line][k] v[k]
using In = sums::Element<IN_TYPE>;

struct Vector {  // v, c0 and c; a step is the distance between two elements
  const In* v;
  const Out* c0;
  Out* c;
  int v_step, c_step;
  float alpha, beta;

  __device__ __forceinline__ void put(int line, float sum) const {
    sum *= alpha;
    if (beta != 0.0f) sum += beta * float(c0[(long long)line * c_step]);
    c[(long long)line * c_step] = Out(sum);
  }
};

struct alignas(16) Eight {
  In part[8];
};

// Lines of k elements, one after the other. A warp has one line.
extern "C" __global__ void __launch_bounds__(COPIERS)
    sum_rows(const In* __restrict__ x, const In* v, const Out* c0, Out* c, int lines, int k, int pitch, int v_step,
             int c_step, long long x_entry, long long v_entry, long long c_entry, float alpha, float beta) {
  const int line = blockIdx.x * (COPIERS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, entry = blockIdx.y;
  ptx::grid_wait();
  if (line >= lines) return;
  const Vector vector{v + entry * v_entry, c0 + entry * c_entry, c + entry * c_entry, v_step, c_step, alpha, beta};
  const In* const row = x + entry * x_entry + (long long)line * pitch;
  float sum = 0.0f;
  if (X_EIGHTS) {
#pragma unroll 8
    for (int at = 8 * lane; at < k; at += 8 * 32) {
      if (at + 8 <= k) {
        const Eight eight = *reinterpret_cast<const Eight*>(row + at);
        Eight factors;
        if (V_EIGHTS) {
          factors = *reinterpret_cast<const Eight*>(vector.v + at);
        } else {
#pragma unroll
          for (int i = 0; i < 8; i++) factors.part[i] = vector.v[(long long)(at + i) * v_step];
        }
#pragma unroll
        for (int i = 0; i < 8; i++) sum += float(eight.part[i]) * float(factors.part[i]);
      } else {
        for (int i = at; i < k; i++) sum += float(row[i]) * float(vector.v[(long long)i * v_step]);
      }
    }
  } else {
#pragma unroll 4
    for (int at = lane; at < k; at += 32) sum += float(row[at]) * float(vector.v[(long long)at * v_step]);
  }
  for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  if (lane == 0) vector.put(line, sum);
}

// Adjacent lines, k after k. A cluster has 64 lines, and its blocks share k. In a block, a row of 8 threads has 8 lines
// per thread, and 32 such rows share the block's k.
extern "C" __global__ void __launch_bounds__(COPIERS)
    sum_columns(const In* __restrict__ x, const In* v, const Out* c0, Out* c, int lines, int k, int pitch, int v_step,
                int c_step, long long x_entry, long long v_entry, long long c_entry, float alpha, float beta) {
  constexpr int THREAD_ROWS = COPIERS / 8;
  __shared__ float of_rows[THREAD_ROWS][64], of_block[64];
  const int part = threadIdx.x % 8, thread_row = threadIdx.x / 8, rank = blockIdx.x % PARTS_OF_K;
  const int line = blockIdx.x / PARTS_OF_K * 64 + 8 * part, entry = blockIdx.y;
  const int share = (k + PARTS_OF_K - 1) / PARTS_OF_K, from = rank * share, to = min(k, from + share);
  ptx::grid_wait();
  const Vector vector{v + entry * v_entry, c0 + entry * c_entry, c + entry * c_entry, v_step, c_step, alpha, beta};
  const In* const columns = x + entry * x_entry + line;
  float sum[8] = {};
#pragma unroll 16
  for (int at = from + thread_row; at < to; at += THREAD_ROWS) {
    const float factor = float(vector.v[(long long)at * v_step]);
    const In* const eight = columns + (long long)at * pitch;
    if (X_EIGHTS && line + 8 <= lines) {
      const Eight together = *reinterpret_cast<const Eight*>(eight);
#pragma unroll
      for (int i = 0; i < 8; i++) sum[i] += float(together.part[i]) * factor;
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++)
        if (line + i < lines) sum[i] += float(eight[i]) * factor;
    }
  }
#pragma unroll
  for (int i = 0; i < 8; i++) of_rows[thread_row][8 * part + i] = sum[i];
  __syncthreads();
  float all = 0.0f;
  if (threadIdx.x < 64) {
    for (int i = 0; i < THREAD_ROWS; i++) all += of_rows[i][threadIdx.x];
    of_block[threadIdx.x] = all;
  }
  if (PARTS_OF_K > 1) ptx::cluster_sync();
  if (rank == 0 && threadIdx.x < 64 && line - 8 * part + threadIdx.x < lines) {
    for (int block = 1; block < PARTS_OF_K; block++) all += ptx::cluster_shared(of_block, block)[threadIdx.x];
    vector.put(line - 8 * part + threadIdx.x, all);
  }
  if (PARTS_OF_K > 1) ptx::cluster_sync();  // block 0 has read the others
}
