// m3/fp16: unroll -> GEMM -> permute in half2, two columns at a time, without tensor cores.
//
// Idea      A half2 holds two columns of col in the 4 bytes of one fp32 value, and __hfma2 multiplies and adds both at
//           once: half the bytes, half the shared-memory loads and half the FMA instructions of m2/unroll_gemm.
// Layout    x (N,C,H,W), w (M,C,R,S) = (M,K), y (N,M,P,Q), fp32, C order; col (K, N pairs) of half2 in a float32
//           buffer, where each element has room for two halves; gemm_out (M, N pairs) of float2. pairs = ceil(P Q / 2):
//           the columns of an image are padded to an even number, so that no half2 belongs to two images. w_tile holds
//           each weight twice, as the half2 that multiplies both columns.
// Mapping   unroll: thread -> pair of pixels; permute: thread -> pixel; blockIdx.y -> channel c or m,
//           blockIdx.z -> image. gemm: a block -> TILE rows x 2 TILE columns of gemm_out, a thread -> two columns of a
//           row.
// Roofline  at the course's shapes, N = 10,000, 4.3 TB/s: layer 1 has to move 1.32 GB (0.31 ms); with col (6.3 GB in
//           each direction) and gemm_out, 15.9 GB, 3.7 ms. Layer 2: 0.996 GB (0.23 ms); 11.5 GB, 2.7 ms. 25.1 and 72.5
//           GFLOP, padded to 131 and 77: 1.0 and 0.6 ms at the 134 TFLOP/s of half2, twice the 67 of fp32. The limit is
//           shared memory: four __hfma2 need five loads, four of col and one of four values of w. At one load of a warp
//           per clock and SM, they take about 5 and 3 ms.
// Gain      over m2/unroll_gemm: a factor of at most 2, in unroll and gemm; permute is unchanged. The GEMM remains
//           bound by shared memory.
// Limits    a half has 11 significant bits, overflows above 65,504, and is subnormal below 6e-5. A sum of all K
//           products in half would lose everything below 1/2048 of the sum, and overflow for large K. Therefore only
//           the TILE products of a tile are summed in half, and the sums of the tiles in float. The sum of a tile also
//           overflows above 65,504. precision is "fp16_sum": the check expects the rounding errors of half sums. M up
//           to 16 x 65,535.
// Hazards   both __syncthreads in gemm, as in m2. 64-bit indices into col and gemm_out.
// Source    CUDA Math API, "Half2 Arithmetic Functions": __hfma2 rounds once.
#include <cuda_fp16.h>

extern "C" __global__ void unroll(const float* x, half2* col, int N, int C, int H, int W, int R, int S) {
  const int P = H - R + 1, Q = W - S + 1, pairs = (P * Q + 1) / 2;
  const int pair = blockIdx.x * blockDim.x + threadIdx.x;
  const int n = blockIdx.z;
  if (pair >= pairs) return;
  const int pixel = 2 * pair, next = min(pixel + 1, P * Q - 1);  // where P Q is odd, the last pixel twice
  const long long first = (long long)(pixel / Q) * W + pixel % Q, second = (long long)(next / Q) * W + next % Q;
  for (int c = blockIdx.y; c < C; c += gridDim.y)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) {
        const int k = (c * R + r) * S + s;
        const float* corner = x + (((long long)n * C + c) * H + r) * W + s;  // the input of output pixel (0, 0)
        col[((long long)k * N + n) * pairs + pair] = __floats2half2_rn(corner[first], corner[second]);
      }
}

extern "C" __global__ void gemm(const float* w, const half2* col, float2* gemm_out, int M, long long pairs, int K) {
  __shared__ half2 w_tile[TILE][TILE], col_tile[TILE][TILE];
  const int m = blockIdx.y * TILE + threadIdx.y;
  const long long j = (long long)blockIdx.x * TILE + threadIdx.x;
  const half2 zero = __float2half2_rn(0.0f);

  float2 acc = make_float2(0.0f, 0.0f);
  for (int k0 = 0; k0 < K; k0 += TILE) {
    const int k_w = k0 + threadIdx.x, k_col = k0 + threadIdx.y;
    w_tile[threadIdx.y][threadIdx.x] = m < M && k_w < K ? __float2half2_rn(w[(long long)m * K + k_w]) : zero;
    col_tile[threadIdx.y][threadIdx.x] = j < pairs && k_col < K ? col[k_col * pairs + j] : zero;
    __syncthreads();  // the tiles are complete
    half2 sum = zero;
    for (int k = 0; k < TILE; k++) sum = __hfma2(w_tile[threadIdx.y][k], col_tile[k][threadIdx.x], sum);
    acc.x += __low2float(sum);
    acc.y += __high2float(sum);
    __syncthreads();  // the tiles have been read
  }
  if (m < M && j < pairs) gemm_out[m * pairs + j] = acc;
}

extern "C" __global__ void permute(const float* gemm_out, float* y, int N, int M, int PQ) {
  const int padded = (PQ + 1) / 2 * 2;  // columns of an image in gemm_out
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int n = blockIdx.z;
  if (pixel >= PQ) return;
  for (int m = blockIdx.y; m < M; m += gridDim.y)
    y[((long long)n * M + m) * PQ + pixel] = gemm_out[((long long)m * N + n) * padded + pixel];
}
