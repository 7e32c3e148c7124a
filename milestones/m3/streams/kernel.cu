// m3/streams: m3/fusion's kernel, with the batch in parts whose copies and launches overlap.
//
// Idea      The GPU has a copy engine for each direction beside its multiprocessors. Cut the batch into parts, give
//           each part's three steps (copy x in, launch, copy y out) to one of several streams in turn, and the part
//           before is copied out and the part after copied in while this one computes.
// Layout    m3/fusion's. x and y lie in pinned host memory: the engines read and write it by themselves, whereas a copy
//           from ordinary memory would go through a staging buffer that the host fills, and wait for it.
// Mapping   m3/fusion's, for the images of one part; variant.py cuts the batch.
// Roofline  the copies: N = 10,000, PCIe 5 at about 55 GB/s each way. Layer 1: 0.30 GB in, 1.02 GB out: 5.4 and 18.6
// ms.
//           Layer 2: 0.26 and 0.74 GB: 4.7 and 13.5 ms. Both directions run at once, so the slower one is the floor.
// Gain      over m3/fusion: nothing in op time, since the kernel is the same. The layer from host to host falls from
//           the sum of the three steps to little more than the longest one; its first copy in and last copy out
//           cannot be hidden.
// Limits    a clock that stops when the last launch has been given to the GPU measures nothing: the layer time here
//           ends when the last image has arrived. Host memory for x and y is pinned.
// Hazards   a part's steps are ordered by their stream; parts share no memory, so streams need not wait for another.
//           The filters are copied before the first part. 64-bit offsets as in m3/fusion.
extern "C" __global__ void conv_fused(const float* x, const float* w, float* y, int C, int H, int W, int M, int R,
                                      int S) {
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
