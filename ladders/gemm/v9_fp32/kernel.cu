// gemm/v9_fp32: the accuracy of fp32 at several times its speed, from three products of halves.
//
// Idea      A float is nearly the sum of two halves, high and low, with 11 bits each: a b = high_a high_b + high_a
// low_b
//           + low_a high_b, and what is left out is 2^-24 of it. Halves end at 65,504 and 6e-8, so each line of an
//           operand is first multiplied by a power of two that brings its largest element to 2^14 (exact, undone at
//           the end). Tensor cores cut sums off where fp32 arithmetic rounds: errors of one sign, which grow with k.
//           So they sum 64 terms only, and those sums are added in registers, with rounding.
// Layout    a (batch,m,k), b (batch,k,n), c0 and c (batch,m,n), row by row, a and b also turned (transposed), pitches
//           from line to line, float. A line is a row of a or a column of b. First, both are split into boxes of 64
//           lines and 32 k: 4 KB of high halves and 4 KB of low ones, in rows of 128 bytes with 128-byte swizzle, box
//           after box along k. Where k is the direction of rows, a row has 32 high halves of a line and 32 low ones,
//           and a factor holds for the line; where lines are beside each other, a row has 64 lines, high and low are
//           apart, and a factor holds for 64 k of a line: one pass over the operand is enough in both cases.
// Mapping   split_rows: a block for each line; split_columns: a block for 64 lines and 64 k; 8 elements a thread at a
//           time. gemm: as gemm/v7_specialised, with 128 rows and 192 or 128 columns: wide tiles first, and narrow ones
//           where they make the last round shorter (variant.py). A thread has 96 sums of the tensor cores and 96 of its
//           own. For 32 k a stage has 40 KB, and 6 instructions a warpgroup: a third less to load for each product
//           than halves alone have.
// Roofline  m = n = k = 4096: 3 x 137 GFLOP, 0.42 ms at 990 TFLOP/s, in practice 0.53 as power lowers the clock;
//           splitting moves 268 MB, 0.063 ms at 4.3 TB/s. Strict fp32, 67 TFLOP/s: 2.05 ms at least.
// Gain      over gemm/v3_registers: 5, to 0.62 ms.
// Limits    sm_90a. Memory for halves: as much as the operands.
// Hazards   as gemm/v7_specialised. Beyond them: the two warpgroups take turns (`turn`), so that one adds while the
//           products of the other run; both would add at once otherwise, and the tensor cores would wait. Factors lie
//           in a stage, so it is given back after they have been read.
//           Lines with an infinity, NaN, or a largest element beyond 2^114 or below 2^-104 get NaN as their factor. A
//           sum that is not finite in the end is made again from a and b, as fp32 would: slow, rare and right.
// Source    Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
//           theoretical peak performance", 2022; Fasi et al., "Numerical behavior of NVIDIA tensor cores", 2021.
#include <mini_dnn/sums.cuh>

constexpr int CONSUMERS = ROWS / 64, CHUNK = 32;
constexpr int BOX_BYTES = 64 * CHUNK * 2 * 2, FACTORS_BYTES = 64 * 4;  // of a box: halves, and factors for 64 k
constexpr int A_BYTES = CONSUMERS * BOX_BYTES, B_BYTES = WIDE / 64 * BOX_BYTES;
constexpr int A_FACTORS = A_LINES ? CONSUMERS * FACTORS_BYTES : 0, B_FACTORS = B_LINES ? WIDE / 64 * FACTORS_BYTES : 0;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES + (A_FACTORS + B_FACTORS + 1023) / 1024 * 1024;
static_assert(CONSUMERS == 2 && THREADS == 384 && SPLITTERS == 256, "two warpgroups take turns, a third one copies");

// ---- Floats to halves

// The power of two that brings a magnitude, given as the bits of a float, to 2^14 at least and below 2^15.
__device__ __forceinline__ float factor_of(unsigned largest) {
  const int exponent = int(largest >> 23) - 127;
  if (largest == 0) return 1.0f;
  if (exponent < -104 || exponent > 114) return __uint_as_float(0x7fc00000);  // NaN: see Hazards
  return __uint_as_float(unsigned(127 + 14 - exponent) << 23);
}

__device__ __forceinline__ unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// Eight elements to eight high halves and eight low ones.
__device__ __forceinline__ void split(const float (&x)[8], const float (&factor)[8], uint4& high, uint4& low) {
  unsigned h[4], l[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float u = x[2 * i] * factor[2 * i], v = x[2 * i + 1] * factor[2 * i + 1];
    h[i] = ptx::pack_halves(u, v);
    const float2 near = ptx::unpack_halves(h[i]);
    l[i] = ptx::pack_halves(u - near.x, v - near.y);
  }
  high = make_uint4(h[0], h[1], h[2], h[3]);
  low = make_uint4(l[0], l[1], l[2], l[3]);
}

// Eight elements from x on, of which `left` are there (or fewer than none); the others are zero.
__device__ __forceinline__ void read(const float* x, int left, bool quads, float (&to)[8]) {
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    if (quads && i + 3 < left) {
      const float4 four = *reinterpret_cast<const float4*>(x + i);
      to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    } else {
#pragma unroll
      for (int j = i; j < i + 4; j++) to[j] = j < left ? x[j] : 0.0f;
    }
  }
}

// Lines of k elements, one after the other; blockIdx.x is the line, blockIdx.y the entry of the batch. The first KEPT
// parts of 8 elements stay in registers, longer lines are read twice.
extern "C" __global__ void __launch_bounds__(SPLITTERS)
    split_rows(const float* __restrict__ x, uint4* boxes, float* factors, int lines, int k, int pitch, int chunks) {
  constexpr int KEPT = 4;
  __shared__ unsigned largest;
  const int line = blockIdx.x, parts = chunks * (CHUNK / 8);
  const float* const from = x + ((long long)blockIdx.y * lines + line) * pitch;
  uint4* const to = boxes + ((long long)(blockIdx.y * (gridDim.x / 64) + line / 64) * chunks * 64 + line % 64) * 8;
  const bool quads = pitch % 4 == 0;
  const int there = line < lines ? k : 0;
  ptx::grid_launch_dependents();
  ptx::grid_wait();
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  float kept[KEPT][8];
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < KEPT; i++) {
    const int part = threadIdx.x + i * SPLITTERS;
    if (part >= parts) break;
    read(from + 8 * part, there - 8 * part, quads, kept[i]);
#pragma unroll
    for (int j = 0; j < 8; j++) most = max(most, magnitude(kept[i][j]));
  }
  for (int at = threadIdx.x + KEPT * SPLITTERS * 8; at < there; at += SPLITTERS) most = max(most, magnitude(from[at]));
  for (int i = 16; i > 0; i /= 2) most = max(most, __shfl_xor_sync(~0u, most, i));
  if (threadIdx.x % 32 == 0) atomicMax(&largest, most);
  __syncthreads();

  const float factor = factor_of(largest);
  const float same[8] = {factor, factor, factor, factor, factor, factor, factor, factor};
  if (threadIdx.x == 0) factors[blockIdx.y * gridDim.x + line] = 1.0f / factor;
  auto write = [&](int part, const float (&values)[8]) {
    uint4 high, low;
    split(values, same, high, low);
    uint4* const row = to + (long long)(part / 4) * 64 * 8;
    row[(part % 4) ^ (line % 8)] = high;
    row[(part % 4 + 4) ^ (line % 8)] = low;
  };
#pragma unroll
  for (int i = 0; i < KEPT; i++) {
    const int part = threadIdx.x + i * SPLITTERS;
    if (part < parts) write(part, kept[i]);
  }
  for (int part = threadIdx.x + KEPT * SPLITTERS; part < parts; part += SPLITTERS) {
    float values[8];
    read(from + 8 * part, there - 8 * part, quads, values);
    write(part, values);
  }
}

// Lines that lie beside each other, k after k: blockIdx.x is a box of 64 lines, blockIdx.y two chunks of k, blockIdx.z
// the entry of the batch.
extern "C" __global__ void __launch_bounds__(SPLITTERS)
    split_columns(const float* __restrict__ x, uint4* boxes, float* factors, int lines, int k, int pitch, int chunks) {
  __shared__ unsigned largest[SPLITTERS / 32][64];
  const int part = threadIdx.x % 8, row = threadIdx.x / 8, line = blockIdx.x * 64 + part * 8;
  const long long box = (long long)blockIdx.z * gridDim.x + blockIdx.x;
  const float* const from = x + (long long)blockIdx.z * k * pitch + line;
  float values[2][8];
  ptx::grid_launch_dependents();
  ptx::grid_wait();
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int at = (blockIdx.y * 2 + h) * CHUNK + row;
    read(from + (long long)at * pitch, at < k ? lines - line : 0, pitch % 4 == 0, values[h]);
  }
#pragma unroll
  for (int i = 0; i < 8; i++) {  // a warp has 4 rows: lanes 8 and 16 apart have the same lines
    unsigned most = max(magnitude(values[0][i]), magnitude(values[1][i]));
    most = max(most, __shfl_xor_sync(~0u, most, 8));
    most = max(most, __shfl_xor_sync(~0u, most, 16));
    if (threadIdx.x % 32 < 8) largest[threadIdx.x / 32][part * 8 + i] = most;
  }
  __syncthreads();
  float factor[8];
#pragma unroll
  for (int i = 0; i < 8; i++) {
    unsigned most = 0;
#pragma unroll
    for (int warp = 0; warp < SPLITTERS / 32; warp++) most = max(most, largest[warp][part * 8 + i]);
    factor[i] = factor_of(most);
    if (row == 0) factors[(box * (chunks / 2) + blockIdx.y) * 64 + part * 8 + i] = 1.0f / factor[i];
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    uint4* const to = boxes + (box * chunks + blockIdx.y * 2 + h) * (BOX_BYTES / 16) + row * 8 + (part ^ (row % 8));
    split(values[h], factor, to[0], to[BOX_BYTES / 32]);
  }
}

// ---- The product

struct Stage {  // of the ring, and the parity of its phase
  int index = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++index == STAGES) index = 0, parity ^= 1;
  }
};

// What all tiles of a block share.
struct Ring {
  char* memory;
  ptx::mbarrier *full, *empty, *turn;
  __device__ __forceinline__ char* a(int stage) const { return memory + stage * STAGE_BYTES; }
  __device__ __forceinline__ char* b(int stage) const { return a(stage) + A_BYTES; }
  __device__ __forceinline__ char* factors(int stage) const { return b(stage) + B_BYTES; }  // of b, then of a
};

// d += the three products of a stage: 32 k.
template <int groups>
__device__ __forceinline__ void multiply(float (&d)[groups][4], const char* a, const char* b, bool accumulate) {
  constexpr int a_low = A_LINES ? BOX_BYTES / 2 : 64, a_next = A_LINES ? 2048 : 32;  // bytes to low, to the next 16 k
  constexpr int b_low = B_LINES ? BOX_BYTES / 2 : 64, b_next = B_LINES ? 2048 : 32;
  const auto left = ptx::matrix_descriptor_128b(a, BOX_BYTES, 1024);
  const auto right = ptx::matrix_descriptor_128b(b, BOX_BYTES, 1024);
  ptx::wgmma_fence();
#pragma unroll
  for (int product = 0; product < 3; product++)  // the small ones first
#pragma unroll
    for (int i = 0; i < CHUNK / 16; i++) {
      const int from_a = i * a_next + (product == 0 ? a_low : 0), from_b = i * b_next + (product == 1 ? b_low : 0);
      ptx::wgmma_m64k16<8 * groups, ptx::Half, A_LINES, B_LINES>(d, left + (from_a >> 4), right + (from_b >> 4),
                                                                 accumulate || product > 0 || i > 0);
    }
  ptx::wgmma_commit();
}

// total = the sums of a tile, but for factors of whole lines.
template <int groups>
__device__ __forceinline__ void sum_up(float (&total)[groups][4], const Ring& ring, Stage& stage, int& turns,
                                       int chunks) {
  const int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32;
  float d[groups][4];
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; chunk += 2, turns++) {
    // the other warpgroup's last products have begun; the first one need not wait for the first turn
    ptx::mbarrier_wait(ring.turn + warpgroup, (turns + (warpgroup == 0)) % 2);
    const int first = stage.index;
    ptx::mbarrier_wait(ring.full + stage.index, stage.parity);
    multiply(d, ring.a(stage.index) + warpgroup * BOX_BYTES, ring.b(stage.index), false);
    stage.next();
    ptx::mbarrier_wait(ring.full + stage.index, stage.parity);
    multiply(d, ring.a(stage.index) + warpgroup * BOX_BYTES, ring.b(stage.index), true);
    ptx::wgmma_wait<1>();
    if (lane == 0) ptx::mbarrier_arrive(ring.turn + (warpgroup ^ 1));
    ptx::wgmma_wait<0>(d);
    if (lane == 0) ptx::mbarrier_arrive(ring.empty + stage.index);
    stage.next();

    const float* const of_b = reinterpret_cast<const float*>(ring.factors(first)) + lane % 4 * 2;
    const float* const of_a = reinterpret_cast<const float*>(ring.factors(first) + B_FACTORS);
    const int row = threadIdx.x / 32 * 16 + lane / 4;
    float factor[2] = {1.0f, 1.0f};
    if (A_LINES) factor[0] = of_a[row], factor[1] = of_a[row + 8];
#pragma unroll
    for (int i = 0; i < groups; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float both = (A_LINES ? factor[j / 2] : 1.0f) * (B_LINES ? of_b[8 * i + j % 2] : 1.0f);
        total[i][j] += A_LINES || B_LINES ? d[i][j] * both : d[i][j];
      }
    if (A_LINES || B_LINES) __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(ring.empty + first);
  }
}

struct Operands {
  const float *a, *b;
  int m, n, k, a_pitch, b_pitch;
};

// An element of c as fp32 arithmetic has it.
__device__ __noinline__ float plain(const Operands& x, int entry, int row, int column) {
  const float* const a = x.a + (long long)entry * (A_LINES ? x.k : x.m) * x.a_pitch;
  const float* const b = x.b + (long long)entry * (B_LINES ? x.k : x.n) * x.b_pitch;
  float sum = 0.0f;
  for (int i = 0; i < x.k; i++)
    sum += (A_LINES ? a[(long long)i * x.a_pitch + row] : a[(long long)row * x.a_pitch + i]) *
           (B_LINES ? b[(long long)i * x.b_pitch + column] : b[(long long)column * x.b_pitch + i]);
  return sum;
}

// The factors of whole lines, and what halves could not do.
template <int groups>
__device__ __forceinline__ void finish(float (&total)[groups][4], const Operands& x, const float* of_a,
                                       const float* of_b, int entry, int row, int column) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < groups; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int r = row + lane / 4 + j / 2 * 8, c = column + 8 * i + lane % 4 * 2 + j % 2;
      if (r >= x.m || c >= x.n) continue;
      if (!A_LINES) total[i][j] *= of_a[r];
      if (!B_LINES) total[i][j] *= of_b[c];
      if (!isfinite(total[i][j])) total[i][j] = plain(x, entry, r, c);
    }
}

struct Tiles {
  int rows, wide, narrow, batch;  // rows of tiles in an entry of the batch, columns of each width
  __device__ __forceinline__ int count() const { return rows * (wide + narrow) * batch; }
  // All wide tiles come first. BAND rows of tiles are one band; in it, tiles follow each other column by column.
  __device__ __forceinline__ bool find(int i, int& row, int& column, int& entry) const {
    const int all_wide = rows * wide * batch;
    const bool is_wide = i < all_wide;
    const int columns = is_wide ? wide : narrow;
    if (!is_wide) i -= all_wide;
    entry = i / (rows * columns);
    i -= entry * rows * columns;
    const int first = i / (BAND * columns) * BAND, height = min(BAND, rows - first), in_band = i - first * columns;
    row = (first + in_band % height) * ROWS;
    column = is_wide ? in_band / height * WIDE : wide * WIDE + in_band / height * NARROW;
    return is_wide;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const char* a_boxes, const char* b_boxes, const float* a_factors, const float* b_factors, const float* a,
         const float* b, const float* c0, float* c, int m, int n, int k, int a_pitch, int b_pitch, int c_pitch,
         int chunks, int wide, int narrow, int batch, float alpha, float beta) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES], turn[CONSUMERS];
  const Tiles tiles{(m + ROWS - 1) / ROWS, wide, narrow, batch};
  const int count = tiles.count(), a_lines = tiles.rows * ROWS, b_lines = wide * WIDE + narrow * NARROW;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, CONSUMERS * 4);
    }
    for (int i = 0; i < CONSUMERS; i++) ptx::mbarrier_init(turn + i, 4);
    ptx::fence_proxy_async();
  }
  __syncthreads();
  ptx::grid_launch_dependents();

  const Ring ring{memory, full, empty, turn};
  Stage stage;
  int row, column, entry;
  if (warpgroup == CONSUMERS) {
    ptx::setmaxnreg_dec<24>();
    if (threadIdx.x != CONSUMERS * 128) return;
    ptx::grid_wait();
    for (int i = blockIdx.x; i < count; i += gridDim.x) {
      const int boxes = (tiles.find(i, row, column, entry) ? WIDE : NARROW) / 64;
      const long long a_box = (entry * a_lines + row) / 64, b_box = (entry * b_lines + column) / 64;
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; chunk++, stage.next()) {
        ptx::mbarrier* const ready = full + stage.index;
        const bool first = chunk % 2 == 0;  // of two stages that share their factors
        const int factors = (A_LINES ? CONSUMERS : 0) + (B_LINES ? boxes : 0);
        ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(ready, (CONSUMERS + boxes) * BOX_BYTES + (first ? factors * FACTORS_BYTES : 0));
        for (int j = 0; j < CONSUMERS; j++)
          ptx::bulk_load(ring.a(stage.index) + j * BOX_BYTES, a_boxes + ((a_box + j) * chunks + chunk) * BOX_BYTES,
                         BOX_BYTES, ready);
        for (int j = 0; j < boxes; j++)
          ptx::bulk_load(ring.b(stage.index) + j * BOX_BYTES, b_boxes + ((b_box + j) * chunks + chunk) * BOX_BYTES,
                         BOX_BYTES, ready);
        char* const to = ring.factors(stage.index);
        for (int j = 0; first && B_LINES && j < boxes; j++)
          ptx::bulk_load(to + j * FACTORS_BYTES, b_factors + ((b_box + j) * chunks + chunk) / 2 * 64, FACTORS_BYTES,
                         ready);
        for (int j = 0; first && A_LINES && j < CONSUMERS; j++)
          ptx::bulk_load(to + B_FACTORS + j * FACTORS_BYTES, a_factors + ((a_box + j) * chunks + chunk) / 2 * 64,
                         FACTORS_BYTES, ready);
      }
    }
    return;
  }

  ptx::setmaxnreg_inc<240>();
  const Operands operands{a, b, m, n, k, a_pitch, b_pitch};
  auto make = [&](auto& total, int& turns) {
    sum_up(total, ring, stage, turns, chunks);
    row += threadIdx.x / 32 * 16;
    finish(total, operands, a_factors + entry * a_lines, b_factors + entry * b_lines, entry, row, column);
    const long long of_entry = (long long)entry * m * c_pitch;
    sums::store<C_PAIRS>(total, sums::Matrix<float>{c0 + of_entry, c + of_entry, m, n, c_pitch, alpha, beta}, row,
                         column);
  };
  int turns = 0;
  for (int i = blockIdx.x; i < count; i += gridDim.x) {
    if (tiles.find(i, row, column, entry)) {
      float total[WIDE / 8][4] = {};
      make(total, turns);
    } else {
      float total[NARROW / 8][4] = {};
      make(total, turns);
    }
  }
}
