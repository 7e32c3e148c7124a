// attention/v3_wmma: attention/v2_coalesced with q k^T on the tensor cores.
//
// Idea      16 queries by 16 keys are one tile of the tensor cores: D / 16 instructions of a warp compute 256 scores.
//           Without them, its threads need 8 D FMAs and twice as many loads. The product with v is unchanged.
// Layout    q, k, v and o (B,H,T,D), or parts of one array (B,T,3,H,D) and o (B,T,H,D), with strides as in v0; halves,
//           sums in float. Tiles in shared memory [token][place], half, with zeros beyond T. k is stored as in memory,
//           and is read as col_major, which is k^T. Scores, and later exponentials, are float [query][key]; each line
//           is followed by PAD floats.
// Mapping   blockIdx.x -> tile of ROWS queries, head after head. Warp -> 16 of KEYS keys; it keeps the queries in
//           fragments. Otherwise as in v2.
// Roofline  32 x 12 heads of 1,025 tokens of 64: 103 GFLOP, 0.10 ms at 990 TFLOP/s (halves); 202 MB, 0.047 ms at 4.3
//           TB/s. The product with v: 52 GFLOP, 0.8 ms at 67 TFLOP/s (float), but 4 ms for its loads from shared
//           memory. Loads of keys take 1.9 ms: keys are D halves apart, so the 8 lines that are read at once start in
//           the same bank.
// Gain      over attention/v2_coalesced: a factor of 2.5, to 8 ms. Now the loads of the product with v are the limit.
// Limits    halves only. A grid has at most 2^31 - 1 tiles.
// Hazards   __syncthreads: after loads, after scores, and before tiles are overwritten. CUDA does not specify which
//           thread has which score, so scores pass through shared memory. Pointers of fragments are aligned to 32
//           bytes, pitches to 16.
// Source    CUDA C++ Programming Guide, "Warp Matrix Functions".
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr unsigned ALL = 0xffffffff;
constexpr int SIDE = 16, PAD = 8;      // of a product, and floats after each line of scores
constexpr int LANES = THREADS / ROWS;  // threads of a query
static_assert(ROWS == SIDE && KEYS == THREADS / 32 * SIDE, "a warp has one tile of scores");
static_assert(32 % LANES == 0, "the threads of a query are of one warp");

typedef wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, half, wmma::row_major> Queries;

// Loads some tokens. Those beyond T are zeros.
template <int tokens>
__device__ void load(half (&tile)[tokens][D], const half* from, long long token, int first, int T) {
  for (int e = threadIdx.x; e < tokens * D; e += THREADS) {
    const int t = e / D, l = e % D;
    tile[t][l] = first + t < T ? from[(first + t) * token + l] : half(0.0f);
  }
}

// The scores of 16 queries and 16 keys.
__device__ void multiply(const Queries (&queries)[D / SIDE], const half (*keys)[D], float* scores) {
  wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, float> acc;
  wmma::fill_fragment(acc, 0.0f);
#pragma unroll
  for (int l = 0; l < D / SIDE; l++) {
    wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, half, wmma::col_major> right;
    wmma::load_matrix_sync(right, &keys[0][l * SIDE], D);
    wmma::mma_sync(acc, queries[l], right, acc);
  }
  wmma::store_matrix_sync(scores, acc, KEYS + PAD, wmma::mem_row_major);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention(const half* q, const half* k, const half* v, half* o, int H, int T, float scale, int part,
              long long entry, long long head, long long token, long long o_entry, long long o_head,
              long long o_token) {
  __shared__ __align__(128) half q_tile[ROWS][D], k_tile[KEYS][D], v_tile[KEYS][D];
  __shared__ __align__(128) float s_tile[ROWS][KEYS + PAD];
  const int tiles = (T + ROWS - 1) / ROWS;  // of a head
  const int of = blockIdx.x / tiles, b = of / H, h = of % H, row0 = blockIdx.x % tiles * ROWS;
  const int row = threadIdx.x / LANES, lane = threadIdx.x % LANES, first = threadIdx.x / 32 * SIDE;
  const int keys = CAUSAL ? min(T, row0 + ROWS) : T;  // that the block needs
  const int seen = CAUSAL ? min(T, row0 + row + 1) : T;
  q += b * entry + h * head;
  k += part + b * entry + h * head;
  v += 2 * part + b * entry + h * head;

  load(q_tile, q, token, row0, T);
  __syncthreads();  // the queries are complete
  Queries queries[D / SIDE];
  for (int l = 0; l < D / SIDE; l++) wmma::load_matrix_sync(queries[l], &q_tile[0][l * SIDE], D);

  float top = -INFINITY;
  for (int key0 = 0; key0 < keys; key0 += KEYS) {
    load(k_tile, k, token, key0, T);
    __syncthreads();  // the tile is complete, and the scores before have been read
    multiply(queries, &k_tile[first], &s_tile[0][first]);
    __syncthreads();  // the scores are complete, and the tile has been read
    for (int j = lane; j < KEYS; j += LANES)
      if (key0 + j < seen) top = fmaxf(top, scale * s_tile[row][j]);
  }
  for (int step = LANES / 2; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(ALL, top, step));

  float sum = 0.0f, acc[D / LANES] = {};
  for (int key0 = 0; key0 < keys; key0 += KEYS) {
    load(k_tile, k, token, key0, T);
    load(v_tile, v, token, key0, T);
    __syncthreads();  // the tiles are complete, and the scores before have been read
    multiply(queries, &k_tile[first], &s_tile[0][first]);
    __syncthreads();  // the scores are complete
    for (int j = lane; j < KEYS; j += LANES) {
      const float power = key0 + j < seen ? expf(scale * s_tile[row][j] - top) : 0.0f;
      sum += power;
      s_tile[row][j] = power;
    }
    __syncwarp();  // the powers of this warp's queries are complete
    for (int j = 0; j < KEYS; j++)
#pragma unroll
      for (int c = 0; c < D / LANES; c++) acc[c] += s_tile[row][j] * float(v_tile[j][c * LANES + lane]);
    __syncthreads();  // the tiles have been read
  }
  for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);

  if (row0 + row >= T) return;
  o += b * o_entry + h * o_head + (row0 + row) * o_token;
  for (int c = 0; c < D / LANES; c++) o[c * LANES + lane] = half(acc[c] / sum);
}
