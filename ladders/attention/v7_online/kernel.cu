// attention/v7_online: one pass over the keys, and scores that never leave registers.
//
// Idea      The previous rungs write scores to shared memory, where the softmax and the next product read them.
//           However, the sums of a product are in the registers of a warp exactly as the left operand of the next
//           product must be: row by row over the same four lanes. A warp therefore multiplies its 16 queries by a block
//           of keys, computes the exponentials of the scores in place, rounds them to halves, and multiplies them by
//           the values. It keeps the largest score so far, and rescales the output when a block of keys raises it
//           (online softmax): one pass, and no matrix of scores, for any T.
// Layout    q, k, v and o (B,H,T,D), or parts of one array (B,T,3,H,D) and o (B,T,H,D): entries, heads and tokens have
//           strides. Halves, sums in float. Shared memory holds two blocks of keys and of values, in rows of 2 D bytes.
//           Their 16-byte parts are permuted in each row, so that ldmatrix has no bank conflicts.
// Mapping   block -> 64 queries of a head, one head after the other; warp -> 16 of them. All warps copy.
// Roofline  32 x 12 heads of 1,025 tokens of 64: 103 GFLOP; mma.sync reaches 600 TFLOP/s on an H200, 0.17 ms.
//           Exponentials: 403 M, 16 per clock and multiprocessor, 0.1 ms. Both take turns in a warp: 0.3 ms and more.
// Gain      over attention/v6_k_coalesced: a factor of 3 or more, because scores, which were half of the shared-memory
//           traffic, stay in registers.
// Limits    halves; sm_80 (cp.async).
// Hazards   Two barriers per block of keys: before it is read, all copies must have arrived; before a stage is filled
//           again, all warps must have read it. Keys beyond T are zeros, whose score 0 would count: they are masked. If
//           all keys of a block are masked for a row, its largest score may still be -inf, and -inf - (-inf) must not
//           be computed.
// Source    T. Dao, arXiv:2307.08691; M. Milakov, N. Gimelshein, arXiv:1805.02867; PTX ISA, "mma", "ldmatrix".
#include <mini_dnn/online_softmax.cuh>

constexpr int ROWS = THREADS / 32 * 16, CHUNKS = D / 8;  // queries of a block; 16-byte parts of a row

// The position of a part of a row.
__device__ __forceinline__ half* part_at(half* tile, int row, int chunk) {
  return tile + row * D + (chunk ^ (D < 64 ? row / 2 % 4 : row % 8)) * 8;
}

// Copies `rows` rows to shared memory. Only `valid` of them exist; the others become zeros.
__device__ __forceinline__ void copy_rows(half* tile, const half* from, int rows, int valid, long long token) {
  for (int i = threadIdx.x; i < rows * CHUNKS; i += THREADS) {
    const int row = i / CHUNKS, chunk = i % CHUNKS;
    ptx::cp_async<16>(part_at(tile, row, chunk), from + min(row, valid - 1) * token + chunk * 8, row < valid ? 16 : 0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention(const half* q, const half* k, const half* v, half* o, int H, int T, float scale, int part,
              long long entry, long long head, long long token, long long o_entry, long long o_head,
              long long o_token) {
  extern __shared__ __align__(16) half memory[];  // two stages of KEYS keys and values; first the queries
  const int pieces = (T + ROWS - 1) / ROWS, of = blockIdx.x / pieces, b = of / H, h = of % H;
  const int first = (pieces - 1 - blockIdx.x % pieces) * ROWS;  // with a mask, the longest ones start first
  q += b * entry + h * head + first * token;
  k += part + b * entry + h * head;
  v += 2 * part + b * entry + h * head;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  const int row = first + warp_row + lane / 4;  // this thread's first
  const int keys = CAUSAL ? min(T, first + ROWS) : T, steps = (keys + KEYS - 1) / KEYS;

  unsigned left[D / 16][4];  // the warp's queries
  copy_rows(memory, q, ROWS, T - first, token);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncthreads();  // the queries have arrived
#pragma unroll
  for (int i = 0; i < D / 16; i++) ptx::ldmatrix(left[i], part_at(memory, warp_row + lane % 16, 2 * i + lane / 16));
  __syncthreads();  // all threads have read them

  auto fetch = [&](int step) {
    half* const to = memory + step % 2 * 2 * KEYS * D;
    if (step < steps) {
      copy_rows(to, k + step * KEYS * token, KEYS, T - step * KEYS, token);
      copy_rows(to + KEYS * D, v + step * KEYS * token, KEYS, T - step * KEYS, token);
    }
    ptx::cp_async_commit();
  };

  OnlineSoftmax<D> rows;
  fetch(0);
  for (int step = 0; step < steps; step++) {
    fetch(step + 1);
    ptx::cp_async_wait<1>();
    __syncthreads();  // this block of keys and values has arrived
    half *const key_tile = memory + step % 2 * 2 * KEYS * D, *const value_tile = key_tile + KEYS * D;
    float s[KEYS / 8][4] = {};
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
      for (int j = 0; j < KEYS / 8; j += 2) {
        unsigned right[4];  // 16 keys: two fragments of 8
        ptx::ldmatrix(right, part_at(key_tile, 8 * j + lane % 8 + lane / 16 * 8, 2 * i + lane / 8 % 2));
        ptx::mma_m16n8k16(s[j], left[i], {right[0], right[1]});
        ptx::mma_m16n8k16(s[j + 1], left[i], {right[2], right[3]});
      }
    unsigned p[KEYS / 16][4];
    rows.weigh<KEYS>(s, p, scale, T - step * KEYS, CAUSAL ? row + 1 - step * KEYS : T);
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++)
#pragma unroll
      for (int j = 0; j < D / 8; j += 2) {
        unsigned right[4];  // 16 columns of values
        ptx::ldmatrix_trans(right, part_at(value_tile, 16 * i + lane % 16, j + lane / 16));
        ptx::mma_m16n8k16(rows.o[j], p[i], {right[0], right[1]});
        ptx::mma_m16n8k16(rows.o[j + 1], p[i], {right[2], right[3]});
      }
    __syncthreads();  // all threads have read this stage
  }
  rows.store(o + b * o_entry + h * o_head + row * o_token, T - row, (int)o_token);
}
