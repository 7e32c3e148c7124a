// m1/tiled_direct: m1/direct with the input in shared memory: a tile of outputs and its halo, by channel.
//
// Idea      Neighbouring outputs share inputs. For each channel, a block copies the inputs that its outputs need to
//           shared memory once, and reads each up to R S times from there.
// Layout    x (N,C,H,W), w (M,C,R,S), y (N,M,P,Q), fp32, C order. x_tile [TILE_P + CHUNK_R - 1][PITCH]: the tile and a
//           halo of CHUNK_R - 1 rows below it and CHUNK_S - 1 columns to the right of it. Longer filters are processed
//           in chunks.
// Mapping   blockIdx.x -> a tile of TILE_P x TILE_Q outputs; blockIdx.y -> m (and m + gridDim.y ...); blockIdx.z -> n.
//           Thread (tx, ty) -> one output of the tile; it copies the input at (ty, tx) of x_tile and every input that
//           is a multiple of TILE_P rows and TILE_Q columns away. The tiles divide P and Q into equal parts of at most
//           512 outputs: 12 x 40 and 12 x 34 in the course's layers.
// Roofline  bytes 4 (N C H W + M K + N M P Q). Layer 1, N = 10,000: 1.32 GB, 0.31 ms at 4.3 TB/s; 25.1 GFLOP, 0.37 ms
//           at 67 TFLOP/s. Layer 2: 0.996 GB, 0.23 ms; 72.5 GFLOP, 1.08 ms. For each tile there are M blocks, one per
//           output channel, and each of them loads the tile and its halo: 1.7 and 1.8 loads per output and channel.
//           This is 1.9 and 5.5 GB, 6 and 22 times the size of x, most of it from L2. Each FMA still needs two loads,
//           one of them from shared memory: about 3 and 9 ms at one per clock and SM.
// Gain      over m1/direct: none on a GPU that caches global loads; a loss is more likely. The loads of x in m1/direct
//           hit L1, which is the same memory as shared memory and equally fast. Shared memory saves only the look-ups
//           of tags, and the second access if a load touches two cache lines. The halo and two barriers per channel are
//           additional costs. The tile would pay if a thread kept each value that it reads in a register, and used it
//           several times.
// Limits    none on the shape. A plane of few pixels leaves threads idle. If the filter is as large as the image, the
//           tile is mostly halo.
// Hazards   both __syncthreads: the first before x_tile is read, the second before it is overwritten, also by the next
//           m. Threads outside y still load and wait: no early return. With PITCH = TILE_Q + 32, thread t reads bank t
//           + const (mod 32) even if a warp spans two rows; this needs CHUNK_S <= 33.
// Source    W. Hwu, D. Kirk, I. El Hajj, "Programming Massively Parallel Processors", 4th ed., chapter 7: tiled
//           convolution with halo cells; CUDA C++ Programming Guide, "Shared Memory".
constexpr int PITCH = TILE_Q + 32;
static_assert(CHUNK_S <= 33, "a row of the tile and its halo fit PITCH");

extern "C" __global__ void conv_direct(const float* x, const float* w, float* y, int C, int H, int W, int M, int R,
                                       int S) {
  __shared__ float x_tile[TILE_P + CHUNK_R - 1][PITCH];
  const int P = H - R + 1, Q = W - S + 1;
  const int tiles_q = (Q + TILE_Q - 1) / TILE_Q;
  const int p0 = blockIdx.x / tiles_q * TILE_P, q0 = blockIdx.x % tiles_q * TILE_Q;  // the tile's first output
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int p = p0 + ty, q = q0 + tx, n = blockIdx.z;

  for (int m = blockIdx.y; m < M; m += gridDim.y) {
    float acc = 0.0f;
    for (int c = 0; c < C; c++) {
      const float* const plane = x + ((long long)n * C + c) * H * W;  // 64 bits: N C H W exceeds 2^31
      for (int r0 = 0; r0 < R; r0 += CHUNK_R)
        for (int s0 = 0; s0 < S; s0 += CHUNK_S) {
          const int rows = min(CHUNK_R, R - r0), columns = min(CHUNK_S, S - s0);  // of the filter
          for (int i = ty; i < TILE_P + rows - 1; i += TILE_P)
            for (int j = tx; j < TILE_Q + columns - 1; j += TILE_Q) {
              const int h = p0 + r0 + i, v = q0 + s0 + j;
              x_tile[i][j] = h < H && v < W ? plane[(long long)h * W + v] : 0.0f;
            }
          __syncthreads();  // the tile is complete
          const float* const filter = w + (((long long)m * C + c) * R + r0) * S + s0;
          for (int r = 0; r < rows; r++)
            for (int s = 0; s < columns; s++) acc += x_tile[ty + r][tx + s] * filter[r * S + s];
          __syncthreads();  // the tile has been read
        }
    }
    if (p < P && q < Q) y[(((long long)n * M + m) * P + p) * Q + q] = acc;
  }
}
