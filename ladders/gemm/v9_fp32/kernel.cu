// gemm/v9_fp32: the accuracy of fp32 at several times its speed, from three products of halves.
//
// Idea      A float is nearly the sum of two halves, high and low, with 11 bits each: a b = high_a high_b + high_a
//           low_b + low_a high_b. The rest is 2^-24 of the product. Halves have the range 6e-8 to 65,504, so each line
//           of an operand is first multiplied by a power of two that brings its largest element to 2^14 (exact, undone
//           at the end). Tensor cores truncate sums, whereas fp32 arithmetic rounds. The errors of truncation all have
//           the same sign and grow with k. The tensor cores therefore add only 64 terms, and these sums are added in
//           registers, with rounding.
// Layout    a (batch,m,k), b (batch,k,n), c0 and c (batch,m,n), row by row; a and b also transposed; pitches from line
//           to line; float. A line is a row of a or a column of b. First, both are split into boxes of 64 lines and 32
//           k: 4 KB of high halves and 4 KB of low ones, in rows of 128 bytes with 128-byte swizzle, box after box
//           along k. If k is the direction of rows, a row has 32 high halves of a line and 32 low ones. If lines are
//           adjacent, a row has 64 lines, and high and low are separate. A line has one factor.
// Mapping   split_rows: a block for each line, which it reads once; split_columns: a block for 64 lines and 64 k, after
//           find_ranges, a separate pass; 8 elements per thread at a time. gemm: as gemm/v7_specialised, with 128 rows
//           and 192 or 128 columns: wide tiles first, and narrow ones if they make the last round shorter (variant.py).
//           A thread has 96 sums of the tensor cores and 96 of its own. A stage of 32 k has 40 KB, and needs 6
//           instructions per warpgroup. This is a third less to load per product than with halves alone.
// Roofline  m = n = k = 4096: 3 x 137 GFLOP, 0.42 ms at 990 TFLOP/s, in practice 0.53 because power lowers the clock;
//           splitting moves 268 MB, 0.063 ms at 4.3 TB/s. Strict fp32, 67 TFLOP/s: 2.05 ms at least.
// Gain      over gemm/v7_specialised: support for floats, at a third of its speed. Over gemm/v3_registers: a factor of
//           5, to 0.62 ms.
// Limits    sm_90a. The halves need as much memory as the operands.
// Hazards   as gemm/v7_specialised. In addition: find_ranges adds to the output of clear, an earlier launch.
//           Halves lose everything below 2^-39 of the largest element of their line. That does not matter if the
//           largest products determine the sum; it does if small elements of a meet large ones of b, or the reverse. If
//           the elements of a row and those of a column are both more than 2^30 apart, their sum is therefore computed
//           again from a and b in fp32. This is slow, but rare. Sums that are not finite are also computed again: lines
//           with an infinity, NaN, or a largest element beyond 2^114 or below 2^-104 have the factor NaN.
// Source    Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
//           theoretical peak performance", 2022; Fasi et al., "Numerical behavior of NVIDIA tensor cores", 2021.
#include <mini_dnn/sums.cuh>

constexpr int CONSUMERS = ROWS / 64, CHUNK = 32;
constexpr int BOX_BYTES = 64 * CHUNK * 2 * 2;
constexpr int A_BYTES = CONSUMERS * BOX_BYTES, B_BYTES = WIDE / 64 * BOX_BYTES;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
static_assert(THREADS == 384 && SPLITTERS == 256, "two warpgroups multiply, a third one copies");

// ---- Floats to halves

// The power of two that brings a magnitude, given as the bits of a float, into the range from 2^14 to below 2^15.
__device__ __forceinline__ float factor_of(unsigned largest) {
  const int exponent = int(largest >> 23) - 127;
  if (largest == 0) return 1.0f;
  if (exponent < -104 || exponent > 114) return __uint_as_float(0x7fc00000);  // NaN: see Hazards
  return __uint_as_float(unsigned(127 + 14 - exponent) << 23);
}

// The largest magnitude of a line and the least one that is not zero, as bits of floats.
struct Range {
  unsigned largest = 0, least = ~0u;
  __device__ __forceinline__ void add(float x) {
    const unsigned magnitude = __float_as_uint(x) & 0x7fffffffu;
    largest = max(largest, magnitude);
    if (magnitude != 0) least = min(least, magnitude);
  }
  __device__ __forceinline__ void add(const Range& other) {
    largest = max(largest, other.largest);
    least = min(least, other.least);
  }
  __device__ __forceinline__ Range of_lane(int mask) const {  // the range of the lane whose number differs in `mask`
    Range other;
    other.largest = __shfl_xor_sync(~0u, largest, mask);
    other.least = __shfl_xor_sync(~0u, least, mask);
    return other;
  }
  __device__ __forceinline__ bool is_wide() const { return largest != 0 && (largest >> 23) - (least >> 23) > SPREAD; }
};

// Splits eight elements into eight high halves and eight low ones.
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

// Loads eight elements from x on. Only `left` of them exist (it may be negative); the others are zero.
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

// The index of a box: those of a tile follow each other, chunk after chunk, so that a stage is one copy. The first
// `wide` tiles have WIDE lines, the others 128.
__device__ __forceinline__ long long place(int box, int chunk, int chunks, int wide) {
  const int narrow_from = wide * (WIDE / 64), size = box < narrow_from ? WIDE / 64 : 2;
  const int first = box < narrow_from ? box / size * size : narrow_from + (box - narrow_from) / size * size;
  return (long long)first * chunks + chunk * size + (box - first);
}

// Lines of k elements, one after the other; blockIdx.x is the line, blockIdx.y the entry of the batch. The first KEPT
// parts of 8 elements stay in registers, longer lines are read twice.
extern "C" __global__ void __launch_bounds__(SPLITTERS)
    split_rows(const float* __restrict__ x, uint4* boxes, float* factors, int* wide, int lines, int k, int pitch,
               int chunks, int wide_tiles) {
  constexpr int KEPT = 4;
  __shared__ Range of_warps[SPLITTERS / 32];
  const int line = blockIdx.x, parts = chunks * (CHUNK / 8);
  const float* const from = x + ((long long)blockIdx.y * lines + line) * pitch;
  uint4* const to = boxes + (long long)blockIdx.y * (gridDim.x / 64) * chunks * (BOX_BYTES / 16) + line % 64 * 8;
  const bool quads = pitch % 4 == 0;
  const int there = line < lines ? k : 0;
  ptx::grid_wait();
  float kept[KEPT][8];
  Range range;
#pragma unroll
  for (int i = 0; i < KEPT; i++) {
    const int part = threadIdx.x + i * SPLITTERS;
    if (part >= parts) break;
    read(from + 8 * part, there - 8 * part, quads, kept[i]);
#pragma unroll
    for (int j = 0; j < 8; j++) range.add(kept[i][j]);
  }
  for (int at = threadIdx.x + KEPT * SPLITTERS * 8; at < there; at += SPLITTERS) range.add(from[at]);
  for (int i = 16; i > 0; i /= 2) range.add(range.of_lane(i));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = range;
  __syncthreads();
  for (int i = 0; i < SPLITTERS / 32; i++) range.add(of_warps[i]);

  const float factor = factor_of(range.largest);
  const float same[8] = {factor, factor, factor, factor, factor, factor, factor, factor};
  if (threadIdx.x == 0) {
    factors[blockIdx.y * gridDim.x + line] = 1.0f / factor;
    wide[blockIdx.y * gridDim.x + line] = range.is_wide();
  }
  auto write = [&](int part, const float (&values)[8]) {
    uint4 high, low;
    split(values, same, high, low);
    uint4* const row = to + place(line / 64, part / 4, chunks, wide_tiles) * (BOX_BYTES / 16);
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

// Before find_ranges.
extern "C" __global__ void __launch_bounds__(SPLITTERS) clear(uint2* ranges, int count) {
  const int i = blockIdx.x * SPLITTERS + threadIdx.x;
  ptx::grid_wait();
  if (i < count) ranges[i] = make_uint2(0, ~0u);
}

// Adjacent lines, k after k: blockIdx.x is 256 lines, blockIdx.y one part of k of gridDim.y,
// blockIdx.z the entry of the batch. A thread has a line, and neighbours have neighbours.
extern "C" __global__ void __launch_bounds__(SPLITTERS)
    find_ranges(const float* __restrict__ x, uint2* ranges, int lines, int k, int pitch, int all_lines) {
  const int line = blockIdx.x * SPLITTERS + threadIdx.x, part = (k + gridDim.y - 1) / gridDim.y;
  const int from = blockIdx.y * part, to = min(k, from + part);
  ptx::grid_wait();
  if (line >= lines) return;
  const float* const column = x + (long long)blockIdx.z * k * pitch + line;
  Range range;
#pragma unroll 8
  for (int i = from; i < to; i++) range.add(column[(long long)i * pitch]);
  uint2* const of_line = ranges + (long long)blockIdx.z * all_lines + line;
  atomicMax(&of_line->x, range.largest);
  atomicMin(&of_line->y, range.least);
}

// The same lines: blockIdx.x is a box of 64, blockIdx.y two chunks of k, blockIdx.z the entry of the batch.
extern "C" __global__ void __launch_bounds__(SPLITTERS)
    split_columns(const float* __restrict__ x, uint4* boxes, float* factors, int* wide, const uint2* ranges, int lines,
                  int k, int pitch, int chunks, int wide_tiles) {
  const int part = threadIdx.x % 8, row = threadIdx.x / 8, line = blockIdx.x * 64 + part * 8;
  const long long first_box = (long long)blockIdx.z * gridDim.x;  // of the entry
  const float* const from = x + (long long)blockIdx.z * k * pitch + line;
  float values[2][8], factor[8];
  ptx::grid_wait();
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int at = (blockIdx.y * 2 + h) * CHUNK + row;
    read(from + (long long)at * pitch, at < k ? lines - line : 0, pitch % 4 == 0, values[h]);
  }
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const long long at = (first_box + blockIdx.x) * 64 + part * 8 + i;
    Range range;
    range.largest = ranges[at].x;
    range.least = ranges[at].y;
    factor[i] = factor_of(range.largest);
    if (blockIdx.y == 0 && row == 0) {
      factors[at] = 1.0f / factor[i];
      wide[at] = range.is_wide();
    }
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const long long box = first_box * chunks + place(blockIdx.x, blockIdx.y * 2 + h, chunks, wide_tiles);
    uint4* const to = boxes + box * (BOX_BYTES / 16) + row * 8 + (part ^ (row % 8));
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
  ptx::mbarrier *full, *empty;
  __device__ __forceinline__ char* a(int stage) const { return memory + stage * STAGE_BYTES; }
  __device__ __forceinline__ char* b(int stage) const { return a(stage) + A_BYTES; }
};

// Starts the three products of a stage, 32 k. They replace d or, with `accumulate`, are added to it.
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
}

// Adds the sums of a tile to total. They still have the factors of their lines.
template <int groups>
__device__ __forceinline__ void sum_up(float (&total)[groups][4], const Ring& ring, Stage& stage, int chunks) {
  const int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32;
  float d[groups][4];
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; chunk += 2) {
    const int first = stage.index;
#pragma unroll
    for (int i = 0; i < 2; i++, stage.next()) {
      ptx::mbarrier_wait(ring.full + stage.index, stage.parity);
      multiply(d, ring.a(stage.index) + warpgroup * BOX_BYTES, ring.b(stage.index), i > 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d);
    if (lane == 0) {
      ptx::mbarrier_arrive(ring.empty + first);
      ptx::mbarrier_arrive(ring.empty + (first + 1) % STAGES);
    }
#pragma unroll
    for (int i = 0; i < groups; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) total[i][j] += d[i][j];  // rounded, not truncated
  }
}

struct Operands {
  const float *a, *b;
  int m, n, k, a_pitch, b_pitch;
};

// For the lines of an entry of the batch: the inverses of their factors, and which lines have a wide range.
struct Lines {
  const float* factors;
  const int* wide;
};

// An element of c, computed in fp32.
__device__ __noinline__ float plain(const Operands& x, int entry, int row, int column) {
  const float* const a = x.a + (long long)entry * (A_LINES ? x.k : x.m) * x.a_pitch;
  const float* const b = x.b + (long long)entry * (B_LINES ? x.k : x.n) * x.b_pitch;
  float sum = 0.0f;
  for (int i = 0; i < x.k; i++) {
    const float of_a = A_LINES ? a[(long long)i * x.a_pitch + row] : a[(long long)row * x.a_pitch + i];
    const float of_b = B_LINES ? b[(long long)i * x.b_pitch + column] : b[(long long)column * x.b_pitch + i];
    sum = fmaf(of_a, of_b, sum);  // a product alone may be beyond fp32
  }
  return sum;
}

// Undoes the factors, stores, and then computes again the sums that halves cannot represent.
template <int groups>
__device__ __forceinline__ void finish(float (&total)[groups][4], const Operands& x, const Lines& of_a,
                                       const Lines& of_b, const sums::Matrix<float>& to, int entry, int row,
                                       int column) {
  const int lane = threadIdx.x % 32, first_row = row + lane / 4, first_column = column + lane % 4 * 2;
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < groups; i++) {  // lines beyond a and b have factors, too
    const float2 of_columns = *reinterpret_cast<const float2*>(of_b.factors + first_column + 8 * i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      total[i][j] *= of_a.factors[first_row + j / 2 * 8];
      total[i][j] *= j % 2 ? of_columns.y : of_columns.x;
      largest = max(largest, __float_as_uint(total[i][j]) & 0x7fffffffu);
    }
  }
  sums::store<C_PAIRS>(total, to, row, column);
  const bool wide[2] = {of_a.wide[first_row] != 0, of_a.wide[first_row + 8] != 0};
  if (largest < 0x7f800000u && !wide[0] && !wide[1]) return;

  unsigned again[groups / 8] = {};  // a bit for each sum
#pragma unroll
  for (int i = 0; i < groups * 4; i++) {
    const bool both = wide[i % 4 / 2] && of_b.wide[first_column + i / 4 * 8 + i % 2];
    if (both || !isfinite(total[i / 4][i % 4])) again[i / 32] |= 1u << i % 32;
  }
#pragma unroll
  for (int word = 0; word < groups / 8; word++) {
#pragma unroll 1
    for (unsigned bits = again[word]; bits != 0; bits &= bits - 1) {
      const int i = word * 32 + __ffs(bits) - 1, r = first_row + i % 4 / 2 * 8, c = first_column + i / 4 * 8 + i % 2;
      if (r >= x.m || c >= x.n) continue;
      const long long at = (long long)r * to.pitch + c;
      const float sum = to.alpha * plain(x, entry, r, c);
      to.c[at] = to.beta == 0.0f ? sum : sum + to.beta * to.c0[at];
    }
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
    gemm(const char* a_boxes, const char* b_boxes, const float* a_factors, const float* b_factors, const int* a_wide,
         const int* b_wide, const float* a, const float* b, const float* c0, float* c, int m, int n, int k, int a_pitch,
         int b_pitch, int c_pitch, int chunks, int wide, int narrow, int batch, float alpha, float beta) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ ptx::mbarrier full[STAGES], empty[STAGES];
  const Tiles tiles{(m + ROWS - 1) / ROWS, wide, narrow, batch};
  const int count = tiles.count(), a_lines = tiles.rows * ROWS, b_lines = wide * WIDE + narrow * NARROW;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, CONSUMERS * 4);
    }
    ptx::fence_proxy_async();
  }
  __syncthreads();
  ptx::grid_launch_dependents();

  const Ring ring{memory, full, empty};
  Stage stage;
  int row, column, entry;
  if (warpgroup == CONSUMERS) {
    ptx::setmaxnreg_dec<24>();
    if (threadIdx.x != CONSUMERS * 128) return;
    ptx::grid_wait();
    for (int i = blockIdx.x; i < count; i += gridDim.x) {
      const int b_bytes = (tiles.find(i, row, column, entry) ? WIDE : NARROW) / 64 * BOX_BYTES;
      const char* from_a = a_boxes + (long long)(entry * a_lines + row) / 64 * chunks * BOX_BYTES;
      const char* from_b = b_boxes + (long long)(entry * b_lines + column) / 64 * chunks * BOX_BYTES;
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; chunk++, stage.next(), from_a += A_BYTES, from_b += b_bytes) {
        ptx::mbarrier* const ready = full + stage.index;
        ptx::mbarrier_wait(empty + stage.index, stage.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(ready, A_BYTES + b_bytes);
        ptx::bulk_load(ring.a(stage.index), from_a, A_BYTES, ready);
        ptx::bulk_load(ring.b(stage.index), from_b, b_bytes, ready);
      }
    }
    return;
  }

  ptx::setmaxnreg_inc<240>();
  const Operands operands{a, b, m, n, k, a_pitch, b_pitch};
  auto make = [&](auto& total) {
    sum_up(total, ring, stage, chunks);
    row += threadIdx.x / 32 * 16;
    const long long of_entry = (long long)entry * m * c_pitch;
    finish(total, operands, {a_factors + entry * a_lines, a_wide + entry * a_lines},
           {b_factors + entry * b_lines, b_wide + entry * b_lines},
           sums::Matrix<float>{c0 + of_entry, c + of_entry, m, n, c_pitch, alpha, beta}, entry, row, column);
  };
  for (int i = blockIdx.x; i < count; i += gridDim.x) {
    if (tiles.find(i, row, column, entry)) {
      float total[WIDE / 8][4] = {};
      make(total);
    } else {
      float total[NARROW / 8][4] = {};
      make(total);
    }
  }
}
