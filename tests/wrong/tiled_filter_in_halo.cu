// The filter lies behind the tile, in one dynamic array; the place was counted for a tile without its halo.
// plan: tiled_and_filter
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  extern __shared__ float x_tile[];  // (TILE + R - 1) x (TILE + S - 1)
  const int P = H - R + 1, Q = W - S + 1, wide = TILE + S - 1, high = TILE + R - 1;
  const int tiles_q = (Q + TILE - 1) / TILE, m = blockIdx.y, n = blockIdx.z;
  const int p0 = blockIdx.x / tiles_q * TILE, q0 = blockIdx.x % tiles_q * TILE;
  const int p = p0 + threadIdx.y, q = q0 + threadIdx.x;
  float* w_tile = x_tile + TILE * TILE;
  float acc = 0.0f;
  for (int c = 0; c < C; c++) {
    if (threadIdx.y == 0 && threadIdx.x < R * S) w_tile[threadIdx.x] = w[(m * C + c) * R * S + threadIdx.x];
    for (int i = threadIdx.y; i < high; i += TILE)
      for (int j = threadIdx.x; j < wide; j += TILE) {
        const bool inside = p0 + i < H && q0 + j < W;
        x_tile[i * wide + j] = inside ? x[((n * C + c) * H + p0 + i) * W + q0 + j] : 0.0f;  // expect: race
      }
    __syncthreads();
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) {
        const float value = x_tile[(threadIdx.y + r) * wide + threadIdx.x + s];
        acc += value * w_tile[r * S + s];
      }
    __syncthreads();
  }
  if (p < P && q < Q) y[((n * M + m) * P + p) * Q + q] = acc;
}
