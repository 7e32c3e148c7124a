// attention/v5_rows: attention/v4_warps with 128 queries per block: 8 warps.
//
// Idea      A tile of keys and values that is loaded for 128 queries costs each of them half as much as for 64. The
//           work of a warp is unchanged.
// Layout    q, k, v and o (B,H,T,D), or parts of one array (B,T,3,H,D) and o (B,T,H,D), with strides as in v0; halves,
//           sums in float. Tiles of k and v in shared memory [token][place], half, with zeros beyond T. Each warp has
//           its own patch of shared memory for its queries, and later for its scores and exponentials, float
//           [query][key]. Each line is followed by PAD floats, so that the groups of four floats that are read at once
//           are in different banks.
// Mapping   blockIdx.x -> tile of ROWS queries, head after head. Warp -> 16 queries. Lanes 2 i and 2 i + 1 hold the
//           scores of query i, in groups of four. Lane -> every 32nd place of the output of all 16 queries.
// Roofline  32 x 12 heads of 1,025 tokens of 64: 103 GFLOP, 0.10 ms at 990 TFLOP/s (halves); 202 MB, 0.047 ms at 4.3
//           TB/s. Tiles are loaded from L2 9 times for each head, 3 x 9 x 50 MB, 0.14 ms at 10 TB/s. Issuing these
//           loads, two bytes per thread, takes 0.2 ms. The product with v takes 0.8 ms at 67 TFLOP/s (float), and
//           fragments of k take 1.9 ms.
// Gain      over attention/v4_warps: a factor of 1.1, to 3.3 ms at T = 1,025. No gain is expected at T = 197: both
//           process 256 queries, and all 8 warps wait for the slowest at a barrier.
// Limits    halves only. A grid has at most 2^31 - 1 tiles. 1,025 tokens fill 89 % of 9 tiles of 128 queries, and would
//           fill 94 % of 17 tiles of 64.
// Hazards   as in v4: two __syncthreads for each tile, __syncwarp within a patch. Queries, which may start anywhere,
//           pass through the patch.
// Source    CUDA C++ Programming Guide, "Warp Matrix Functions"; gemm/v3_registers for the product with v.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr unsigned ALL = 0xffffffff;
constexpr int SIDE = 16, PAD = 8;   // of a product, and floats after each line of a patch
constexpr int WIDE = 4;             // scores that a thread takes at once
constexpr int LINE = KEYS + PAD;    // of a patch
constexpr int COLS = D / 32;        // places of the output of each query that a thread has
constexpr int Q_LINE = SIDE + PAD;  // halves of a line of queries in a patch
static_assert(ROWS == THREADS / 32 * SIDE, "16 queries a warp");
static_assert(KEYS % SIDE == 0 && KEYS % (2 * WIDE) == 0, "two threads share a query's scores");

typedef wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, half, wmma::row_major> Queries;

// Loads some tokens. Those beyond T are zeros.
template <int tokens>
__device__ void load(half (&tile)[tokens][D], const half* from, long long token, int first, int T) {
  for (int e = threadIdx.x; e < tokens * D; e += THREADS) {
    const int t = e / D, l = e % D;
    tile[t][l] = first + t < T ? from[(first + t) * token + l] : half(0.0f);
  }
}

// The scores of 16 queries and KEYS keys, in the warp's patch.
__device__ void multiply(const Queries (&queries)[D / SIDE], const half (&keys)[KEYS][D], float* scores) {
#pragma unroll
  for (int j = 0; j < KEYS; j += SIDE) {
    wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, float> acc;
    wmma::fill_fragment(acc, 0.0f);
#pragma unroll
    for (int l = 0; l < D / SIDE; l++) {
      wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, half, wmma::col_major> right;
      wmma::load_matrix_sync(right, &keys[j][l * SIDE], D);
      wmma::mma_sync(acc, queries[l], right, acc);
    }
    wmma::store_matrix_sync(scores + j, acc, LINE, wmma::mem_row_major);
  }
  __syncwarp();  // the scores are complete
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention(const half* q, const half* k, const half* v, half* o, int H, int T, float scale, int part,
              long long entry, long long head, long long token, long long o_entry, long long o_head,
              long long o_token) {
  __shared__ __align__(128) half k_tile[KEYS][D], v_tile[KEYS][D];
  __shared__ __align__(128) float patches[THREADS / 32][SIDE][LINE];
  const int tiles = (T + ROWS - 1) / ROWS;  // of a head
  const int of = blockIdx.x / tiles, b = of / H, h = of % H, first = blockIdx.x % tiles * ROWS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row0 = first + warp * SIDE, row = lane / 2;
  const int keys = CAUSAL ? min(T, first + ROWS) : T;  // that the block needs
  const int seen = CAUSAL ? min(T, row0 + row + 1) : T;
  float (&patch)[SIDE][LINE] = patches[warp];
  q += b * entry + h * head;
  k += part + b * entry + h * head;
  v += 2 * part + b * entry + h * head;

  Queries queries[D / SIDE];
  half* staged = reinterpret_cast<half*>(&patch[0][0]);
#pragma unroll
  for (int l = 0; l < D / SIDE; l++) {
    for (int e = lane; e < SIDE * SIDE; e += 32) {
      const int i = e / SIDE, at = l * SIDE + e % SIDE;
      staged[i * Q_LINE + e % SIDE] = row0 + i < T ? q[(row0 + i) * token + at] : half(0.0f);
    }
    __syncwarp();  // these places of the queries are complete
    wmma::load_matrix_sync(queries[l], staged, Q_LINE);
    __syncwarp();  // they have been read
  }

  float top = -INFINITY;
  for (int key0 = 0; key0 < keys; key0 += KEYS) {
    load(k_tile, k, token, key0, T);
    __syncthreads();  // the tile is complete
    multiply(queries, k_tile, &patch[0][0]);
    for (int j = lane % 2 * WIDE; j < KEYS; j += 2 * WIDE) {
      const float4 s = *reinterpret_cast<float4*>(&patch[row][j]);
      const float four[WIDE] = {s.x, s.y, s.z, s.w};
      for (int e = 0; e < WIDE; e++)
        if (key0 + j + e < seen) top = fmaxf(top, scale * four[e]);
    }
    __syncthreads();  // tile and scores have been read
  }
  top = fmaxf(top, __shfl_xor_sync(ALL, top, 1));

  float sum = 0.0f, acc[SIDE][COLS] = {};
  for (int key0 = 0; key0 < keys; key0 += KEYS) {
    load(k_tile, k, token, key0, T);
    load(v_tile, v, token, key0, T);
    __syncthreads();  // the tiles are complete
    multiply(queries, k_tile, &patch[0][0]);
    for (int j = lane % 2 * WIDE; j < KEYS; j += 2 * WIDE) {
      float4& at = *reinterpret_cast<float4*>(&patch[row][j]);
      const float four[WIDE] = {at.x, at.y, at.z, at.w};
      float power[WIDE];
      for (int e = 0; e < WIDE; e++) {
        power[e] = key0 + j + e < seen ? expf(scale * four[e] - top) : 0.0f;
        sum += power[e];
      }
      at = make_float4(power[0], power[1], power[2], power[3]);
    }
    __syncwarp();  // the powers are complete
    for (int j = 0; j < KEYS; j += WIDE) {
      float value[WIDE][COLS];
      for (int e = 0; e < WIDE; e++)
        for (int c = 0; c < COLS; c++) value[e][c] = float(v_tile[j + e][c * 32 + lane]);
#pragma unroll
      for (int i = 0; i < SIDE; i++) {
        const float4 power = *reinterpret_cast<float4*>(&patch[i][j]);
        for (int c = 0; c < COLS; c++)
          acc[i][c] += power.x * value[0][c] + power.y * value[1][c] + power.z * value[2][c] + power.w * value[3][c];
      }
    }
    __syncthreads();  // tiles and powers have been read
  }
  sum += __shfl_xor_sync(ALL, sum, 1);

  o += b * o_entry + h * o_head;
#pragma unroll  // registers cannot be indexed
  for (int i = 0; i < SIDE; i++) {
    const float all = __shfl_sync(ALL, sum, 2 * i);  // all lanes take part, even without a query
    for (int c = 0; c < COLS; c++)
      if (row0 + i < T) o[(row0 + i) * o_token + c * 32 + lane] = half(acc[i][c] / all);
  }
}
