// m3/constant_memory: m1/direct with the filters in constant memory.
//
// Idea      All threads of m1/direct read the same w at the same time. Constant memory has its own cache and data path
//           for that: one read serves the warp, without an address per thread and without the load units.
// Layout    x (N,C,H,W), w (M,C,R,S), y (N,M,P,Q), fp32, C order; w_const holds w unchanged, copied before the launch.
// Mapping   thread -> pixel p Q + q of an output plane; blockIdx.y -> m (and m + gridDim.y ...); blockIdx.z -> n. The
//           parent is m1/direct and not m3/fusion, because of the access pattern: if a warp reads different addresses
//           of constant memory, they are served one after the other, and a warp of fusion's tile loader reads 32
//           different weights.
// Roofline  bytes 4 (N C H W + M K + N M P Q). Layer 1, N = 10,000: 1.32 GB, 0.31 ms at 4.3 TB/s; 25.1 GFLOP, 0.37 ms
//           at 67 TFLOP/s. Layer 2: 0.996 GB, 0.23 ms; 72.5 GFLOP, 1.08 ms. Extra traffic: the copy of w, 784 B and
//           12.5 KB. One load through L1 per FMA: 1.5 and 4.3 ms at one per clock and SM.
// Gain      over m1/direct: up to a factor of two if the load units are its limit, because half of the loads no longer
//           use them. The real gain is smaller, because the address arithmetic remains.
// Limits    constant memory holds 64 KB, 16,384 weights: larger filter banks are read from w, as in m1/direct
//           (W_IN_CONSTANT 0), without a gain. An SM caches only a few of the 64 KB; reads of the others go to L2.
// Hazards   the copy must end before the kernel starts: both are on one stream.
// Source    CUDA C++ Best Practices Guide, "Constant Memory".
__constant__ float w_const[16384];

__device__ float weight(const float* w, long long i) { return W_IN_CONSTANT ? w_const[i] : w[i]; }

extern "C" __global__ void conv_direct(const float* x, const float* w, float* y, int C, int H, int W, int M, int R,
                                       int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  const int n = blockIdx.z;
  if (pixel >= P * Q) return;  // the last block of a plane has threads without a pixel
  const int p = pixel / Q, q = pixel % Q;

  for (int m = blockIdx.y; m < M; m += gridDim.y) {
    float acc = 0.0f;
    for (int c = 0; c < C; c++)
      for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++) {
          // 64 bits: N C H W exceeds 2^31 at large batches
          const float value = x[(((long long)n * C + c) * H + p + r) * W + q + s];
          acc += value * weight(w, (((long long)m * C + c) * R + r) * S + s);
        }
    y[((long long)n * M + m) * P * Q + pixel] = acc;
  }
}
