// attention/v1_shared: attention/v0_naive with tiles of q, k and v in shared memory, for 16 queries at a time.
//
// Idea      16 queries need the same keys and values. The threads of a block load KEYS of them together. In each pass,
//           they compute each score once, share it, and multiply it by the values.
// Layout    q, k, v and o (B,H,T,D), or parts of one array (B,T,3,H,D) and o (B,T,H,D), with strides as in v0; halves
//           or floats, sums in float. Tiles in shared memory [token][place], float, with zeros beyond T. One float of
//           padding after each line puts the same place of 32 tokens into 32 banks.
// Mapping   blockIdx.x -> tile of ROWS queries, head after head. LANES threads per query: each computes the scores of
//           every LANES-th key, and every LANES-th place of the output. For loads: thread -> token.
// Roofline  32 x 12 heads of 1,025 tokens of 64: 103 GFLOP, 0.10 ms at 990 TFLOP/s (halves); 202 MB, 0.047 ms at 4.3
//           TB/s. Scores are computed twice: 155 GFLOP, 2.3 ms at 67 TFLOP/s (float). An FMA of a score needs two loads
//           from shared memory, and an FMA of the output needs one: 19 ms. When tiles are loaded, each load of a warp
//           touches 32 lines, which takes 22 ms.
// Gain      over attention/v0_naive: a factor of 20, to 40 ms, because D threads no longer compute the same scores.
// Limits    a grid has at most 2^31 - 1 tiles. Any T: the second pass computes the scores of a tile again, so they need
//           not be stored. Loads are not coalesced.
// Hazards   both __syncthreads of each pass: the first before tiles are read, the second before they are overwritten.
//           The threads of a query are in one warp, so __syncwarp is sufficient for its exponentials. Threads of
//           queries beyond T do everything but the store.
// Source    W. Hwu, D. Kirk, I. El Hajj, "Programming Massively Parallel Processors", 4th ed., chapter 5: tiling.
#include <cuda_fp16.h>

#include <type_traits>

using Number = std::conditional_t<IN_HALF, half, float>;

constexpr unsigned ALL = 0xffffffff;
constexpr int LANES = THREADS / ROWS;  // threads of a query
static_assert(LANES == 16 && KEYS % LANES == 0 && D % LANES == 0, "a query has half a warp");

// Loads some tokens. Those beyond T are zeros.
template <int tokens>
__device__ void load(float (&tile)[tokens][D + 1], const Number* from, long long token, int first, int T) {
  for (int e = threadIdx.x; e < tokens * D; e += THREADS) {
    const int t = e % tokens, l = e / tokens;
    tile[t][l] = first + t < T ? float(from[(first + t) * token + l]) : 0.0f;
  }
}

__device__ float dot(const float (&a)[D + 1], const float (&b)[D + 1]) {
  float sum = 0.0f;
#pragma unroll 16
  for (int l = 0; l < D; l++) sum += a[l] * b[l];
  return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    attention(const Number* q, const Number* k, const Number* v, Number* o, int H, int T, float scale, int part,
              long long entry, long long head, long long token, long long o_entry, long long o_head,
              long long o_token) {
  __shared__ float q_tile[ROWS][D + 1], k_tile[KEYS][D + 1], v_tile[KEYS][D + 1], p_tile[ROWS][KEYS];
  const int tiles = (T + ROWS - 1) / ROWS;  // of a head
  const int of = blockIdx.x / tiles, b = of / H, h = of % H, row0 = blockIdx.x % tiles * ROWS;
  const int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const int keys = CAUSAL ? min(T, row0 + ROWS) : T;  // that the block needs
  const int seen = CAUSAL ? min(T, row0 + row + 1) : T;
  q += b * entry + h * head;
  k += part + b * entry + h * head;
  v += 2 * part + b * entry + h * head;

  load(q_tile, q, token, row0, T);
  float top = -INFINITY;
  for (int key0 = 0; key0 < keys; key0 += KEYS) {
    load(k_tile, k, token, key0, T);
    __syncthreads();  // the tiles of keys and of queries are complete
    for (int j = lane; j < KEYS; j += LANES)
      if (key0 + j < seen) top = fmaxf(top, scale * dot(q_tile[row], k_tile[j]));
    __syncthreads();  // the tile has been read
  }
  for (int step = LANES / 2; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(ALL, top, step));

  float sum = 0.0f, acc[D / LANES] = {};
  for (int key0 = 0; key0 < keys; key0 += KEYS) {
    load(k_tile, k, token, key0, T);
    load(v_tile, v, token, key0, T);
    __syncthreads();  // the tiles are complete
    for (int j = lane; j < KEYS; j += LANES) {
      const float power = key0 + j < seen ? expf(scale * dot(q_tile[row], k_tile[j]) - top) : 0.0f;
      sum += power;
      p_tile[row][j] = power;
    }
    __syncwarp();  // the powers of this warp's queries are complete
    for (int j = 0; j < KEYS; j++)
      for (int c = 0; c < D / LANES; c++) acc[c] += p_tile[row][j] * v_tile[j][c * LANES + lane];
    __syncthreads();  // tiles and powers have been read
  }
  for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);

  if (row0 + row >= T) return;
  o += b * o_entry + h * o_head + (row0 + row) * o_token;
  for (int c = 0; c < D / LANES; c++) o[c * LANES + lane] = Number(acc[c] / sum);
}
