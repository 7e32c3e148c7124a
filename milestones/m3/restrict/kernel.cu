// m3/restrict: m3/fusion with const __restrict__ pointers, and nothing else.
//
// Idea      __restrict__ promises that nothing written through y is read through x or w. The compiler may then load x
//           and w through the read-only path (LDG.CONSTANT), keep loaded values across a store, and move loads up, even
//           across a barrier, after which another thread's writes could otherwise be visible.
// Layout    x (N,C,H,W), w (M,C,R,S) = (M,K), y (N,M,P,Q), fp32, C order. Tiles as in m3/fusion.
// Mapping   blockIdx.x -> TILE pixels of an output plane, blockIdx.y -> TILE channels m, blockIdx.z -> image;
//           a thread -> one element of y.
// Roofline  as m3/fusion. Layer 1, N = 10,000: 1.32 GB, 0.31 ms at 4.3 TB/s; 25.1 GFLOP, 0.37 ms at 67 TFLOP/s. Layer
//           2: 0.996 GB, 0.23 ms; 72.5 GFLOP, 1.08 ms. No extra traffic. Instructions are the limit, as many as in
//           m3/fusion: 15.0 and 8.4 ms.
// Gain      over m3/fusion: none expected. The kernel stores once, after its last load, so no store delayed a load; and
//           since sm_70 ordinary global loads are also cached in L1, so the read-only path is not faster. The promise
//           pays in kernels that store in a loop between loads.
// Limits    M at most TILE x 65,535. A caller that lets y overlap x or w gets wrong results.
// Hazards   both __syncthreads: the first before tiles are read, the second before they are overwritten.
// Source    CUDA C++ Programming Guide, "__restrict__"; CUDA C++ Best Practices Guide, "Read-Only Data Cache".
extern "C" __global__ void conv_fused(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y,
                                      int C, int H, int W, int M, int R, int S) {
  __shared__ float w_tile[TILE][TILE], col_tile[TILE][TILE];
  const int P = H - R + 1, Q = W - S + 1, K = C * R * S;
  const int m = blockIdx.y * TILE + threadIdx.y;
  const int pixel = blockIdx.x * TILE + threadIdx.x;
  const int p = pixel / Q, q = pixel % Q;
  x += (long long)blockIdx.z * C * H * W;
  y += (long long)blockIdx.z * M * P * Q;

  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += TILE) {
    const int k_w = k0 + threadIdx.x;
    const unsigned k_col = k0 + threadIdx.y;  // unsigned: its divisions take fewer instructions
    const int s = k_col % S, r = k_col / S % R, c = k_col / S / R;
    w_tile[threadIdx.y][threadIdx.x] = m < M && k_w < K ? w[(long long)m * K + k_w] : 0.0f;
    col_tile[threadIdx.y][threadIdx.x] = pixel < P * Q && k_col < K ? x[(long long)(c * H + p + r) * W + q + s] : 0.0f;
    __syncthreads();  // the tiles are complete
    for (int k = 0; k < TILE; k++) acc += w_tile[threadIdx.y][k] * col_tile[k][threadIdx.x];
    __syncthreads();  // the tiles have been read
  }
  if (m < M && pixel < P * Q) y[(long long)m * P * Q + pixel] = acc;
}
