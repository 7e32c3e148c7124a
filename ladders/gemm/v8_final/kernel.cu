// gemm/v8_final: gemm/v7_specialised for every shape: clusters, split sums, small tiles, odd pitches, vectors.
//
// Idea      What is left is not in the main loop. Two blocks, one below the other, form a cluster: each loads half of
//           the columns of b that both need, and the copy engine hands them to both (multicast), so that L2 gives a
//           third less. Where tiles are fewer than multiprocessors, they are smaller, or a cluster shares the k of a
//           tile and adds up in its shared memory. Operands whose lines do not start at multiples of 16 bytes are
//           copied to lines that do; c goes out from shared memory, whatever its pitch. A product with a vector is no
//           product for tensor cores: it reads the matrix once. And the kernel may be launched early: it gets ready
//           while the one ahead of it ends, and waits before it reads. variant.py chooses, by a model of the time.
// Layout    as gemm/v7_specialised. Blocks of a cluster that share b lie SHARE tiles below each other, and block i
// loads
//           boxes i, i + 1, ... of each tile of b; blocks that share k have SPLIT parts of the steps.
// Mapping   a block on each multiprocessor; ROWS / 64 warpgroups consume, one warp produces. Tiles are taken in bands
// of
//           BAND rows of clusters, column by column. Vectors: a warp for a line, or a block for 64 of them.
// Roofline  m = n = k = 4096: 137 GFLOP, 0.14 ms at 990 TFLOP/s, in practice 0.175 as power lowers the clock. L2 gives
//           32 KB for 1,024 clocks of products. 512: 3 us, most of it launching and the first loads.
// Gain      over gemm/v7_specialised: none at 4096, both have cuBLAS's speed; 2.2 at 512 and 1024; odd sizes at all.
// Limits    16 bits, sm_90a.
// Hazards   as gemm/v7_specialised. Beyond them: a stage is free when the consumers of both blocks have read it, as
//           either fills both: warps arrive in both. No block may leave while another one still writes to it, or
//           arrives there. That arrival is relaxed: it publishes nothing, and a release is a fence of the whole GPU.
//           An address in a cluster has the block's rank in its upper bits, which a matrix descriptor has no room for.
//           Whoever is launched early must not touch global memory before grid_wait(): here the producer waits, and all
//           others wait for what it copies.
// Source    PTX ISA, "cp.async.bulk.tensor" (multicast), "st.async", "griddepcontrol"; CUTLASS, "Efficient GEMM in
// CUDA".
#include <mini_dnn/sums.cuh>

using Operand = std::conditional_t<IN_TYPE == sums::fp16, ptx::Half, ptx::Bfloat>;
using Out = sums::Element<OUT_TYPE>;

// ---- The product of matrices

constexpr int CONSUMERS = ROWS / 64, CLUSTER = SHARE * SPLIT, BOX_BYTES = 64 * TILE_K * 2;  // a box: 64 rows or columns
constexpr int A_BYTES = ROWS * TILE_K * 2, B_BYTES = COLUMNS * TILE_K * 2;
constexpr int GROUPS = COLUMNS / 8, PART = GROUPS / SPLIT;  // of 8 columns; of those that a block adds up
constexpr int STAGED_BYTES = 4096;                          // of a warp
constexpr int SLOT = CONSUMERS * 128;                       // of four sums, from another block: a place for each thread
static_assert(TILE_K == 64 && THREADS == CONSUMERS * 128 + 32, "consumers, then the producer's warp");
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

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ ptx::TensorMap a, const __grid_constant__ ptx::TensorMap b,
         const __grid_constant__ ptx::TensorMap c_map, const Out* c0, Out* c, int m, int n, int k, int c_pitch,
         int batch, float alpha, float beta) {
  extern __shared__ __align__(1024) char memory[];  // stages; what warps send out; sums of other blocks
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES], landed;
  const int rank = CLUSTER > 1 ? ptx::cluster_rank() : 0, clusters = gridDim.x / CLUSTER;
  const Tiles tiles{(m + SHARE * ROWS - 1) / (SHARE * ROWS), (n + COLUMNS - 1) / COLUMNS};
  const int count = tiles.rows * tiles.columns * batch, steps = (k + TILE_K - 1) / TILE_K;
  const int first = SPLIT > 1 ? steps * rank / SPLIT : 0, last = SPLIT > 1 ? steps * (rank + 1) / SPLIT : steps;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // the compiler sees that a warp agrees
  char* const staged = memory + STAGES * (A_BYTES + B_BYTES);
  float4* const slots = reinterpret_cast<float4*>(staged);  // those who split do not stage
  if (threadIdx.x == CONSUMERS * 128) {
    ptx::tensor_prefetch(a);
    ptx::tensor_prefetch(b);
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, CONSUMERS * 4 * SHARE);  // every warp that multiplies
    }
    ptx::mbarrier_init(&landed, 1);
    if (SPLIT > 1) ptx::mbarrier_arrive_expect_tx(&landed, (SPLIT - 1) * PART * SLOT * 16);
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();
  }
  __syncthreads();
  if (CLUSTER > 1) {
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
  ptx::grid_launch_dependents();

  Stage stage;
  int row, column, entry;
  if (warpgroup == CONSUMERS) {
    if (threadIdx.x % 32 == 0) {
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
    __syncwarp();
  } else {
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
      int before = 0;  // the stage of the step before
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
        ptx::wgmma_wait<1>();  // the step before is done: its stage may be filled again
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
        add_up(d, sum, slots, &landed, rank);
        sums::store<C_PAIRS>(sum, to, row + warp_row, column + rank * PART * 8);
      } else if constexpr (STORE == BY_TENSOR) {
        sums::store_tensor<Out>(d, c_map, alpha, own, row + warp_row, column, entry);
      } else if constexpr (STORE == BY_ROWS) {
        sums::store_rows(d, to, own, row + warp_row, column);
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

// ---- Lines of any pitch to lines of a multiple of eight elements, with zeros behind them. Two loads of 16 bytes hold
// the eight elements of a thread, wherever they begin.
typedef unsigned short Bits;
typedef unsigned long long Four;

extern "C" __global__ void __launch_bounds__(COPIERS)
    repitch(const Bits* __restrict__ from, uint4* to, int lines, int length, int pitch, int to_pitch) {
  const int parts = to_pitch / 8;
  const long long all = (long long)(lines - 1) * pitch + length;  // elements that may be read
  ptx::grid_wait();
  for (int line = blockIdx.y; line < lines; line += gridDim.y) {
    const long long start = (long long)line * pitch;
    const int shift = start % 8;
    for (int part = blockIdx.x * COPIERS + threadIdx.x; part < parts; part += gridDim.x * COPIERS) {
      uint4 eight;
      if (part * 8 + 8 <= length && start - shift + part * 8 + 16 <= all) {
        const uint4* const near = reinterpret_cast<const uint4*>(from + (start - shift)) + part;
        const uint4 p = near[0], q = near[1];
        const Four w[4] = {p.x | Four(p.y) << 32, p.z | Four(p.w) << 32, q.x | Four(q.y) << 32, q.z | Four(q.w) << 32};
        const bool second = shift >= 4;
        const int bits = shift % 4 * 16;
        const Four x = second ? w[1] : w[0], y = second ? w[2] : w[1], z = second ? w[3] : w[2];
        const Four low = bits ? x >> bits | y << (64 - bits) : x, high = bits ? y >> bits | z << (64 - bits) : y;
        eight = make_uint4(unsigned(low), unsigned(low >> 32), unsigned(high), unsigned(high >> 32));
      } else {
        unsigned one[8];
#pragma unroll
        for (int i = 0; i < 8; i++) one[i] = part * 8 + i < length ? from[start + part * 8 + i] : 0;
        eight = make_uint4(one[0] | one[1] << 16, one[2] | one[3] << 16, one[4] | one[5] << 16, one[6] | one[7] << 16);
      }
      to[(long long)line * parts + part] = eight;
    }
  }
}

// ---- The product of a matrix and a vector: sums over k of x[line][k] v[k], a line of c each
using In = sums::Element<IN_TYPE>;

struct Vector {  // v, the sums, and where c0 and c have them: elements from one to the next
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

// Lines of k elements, one after the other: a warp for each.
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

// Lines beside each other, k after k: a cluster for 64 of them, whose blocks share k; in a block 8 threads have 8 lines
// each, and 32 rows of threads share its k again.
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
