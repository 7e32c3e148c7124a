// The additions of mini_dnn/ptx_attention.cuh to mini_dnn/ptx.cuh, one instruction per kernel.
#include <mini_dnn/ptx_few_values.cuh>

extern "C" __global__ void powers(const float* x, float* y) { y[threadIdx.x] = ptx::exp2_approx(x[threadIdx.x]); }

extern "C" __global__ void turn(const unsigned* in, unsigned* out) {
  out[threadIdx.x] = ptx::transpose_8x8(in[threadIdx.x]);
}

#ifdef PTX_WGMMA
// scores (64,112) = q k^T, q (64,16), k (112,16), and o (64,64) = p v with p (64,16) in registers, v (16,64): rows of
// 128 bytes with 128-byte swizzle.
extern "C" __global__ void products(const uint4* q, const uint4* k, const unsigned* p, const uint4* v, float* scores,
                                    float* o) {
  __shared__ __align__(1024) uint4 q_tile[64 * 8], k_tile[112 * 8], v_tile[16 * 8];
  for (int i = threadIdx.x; i < 112 * 8; i += 128) {
    const int to = i / 8 * 8 + (i % 8 ^ i / 8 % 8);
    k_tile[to] = k[i];
    if (i < 64 * 8) q_tile[to] = q[i];
    if (i < 16 * 8) v_tile[to] = v[i];
  }
  ptx::fence_proxy_async();
  __syncthreads();
  float s[14][4], sums[8][4];
  unsigned left[4];
  for (int i = 0; i < 4; i++) left[i] = p[threadIdx.x * 4 + i];
  ptx::wgmma_fence();
  ptx::wgmma_scores<112, false>(s, ptx::matrix_descriptor_128b(q_tile, 16, 1024),
                                ptx::matrix_descriptor_128b(k_tile, 16, 1024));
  ptx::wgmma_values<64>(sums, left, ptx::matrix_descriptor_128b(v_tile, 2048, 1024), false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(s);
  ptx::wgmma_wait<0>(sums);
  for (int i = 0; i < 56; i++) scores[threadIdx.x * 56 + i] = s[i / 4][i % 4];
  for (int i = 0; i < 32; i++) o[threadIdx.x * 32 + i] = sums[i / 4][i % 4];
}

// out (64,8) = transposed v p, v (16,64) in such rows, p (16,8) in columns of 8 k each: 128 bytes, and 128 more.
extern "C" __global__ void few_values(const uint4* v, const uint4* p, float* out) {
  __shared__ __align__(1024) uint4 v_tile[16 * 8], p_tile[16];
  v_tile[threadIdx.x / 8 * 8 + (threadIdx.x % 8 ^ threadIdx.x / 8 % 8)] = v[threadIdx.x];
  if (threadIdx.x < 16) p_tile[threadIdx.x] = p[threadIdx.x];
  ptx::fence_proxy_async();
  __syncthreads();
  float sums[1][4];
  ptx::wgmma_fence();
  for (int i = 0; i < 2; i++)  // replaces sums, and adds to them
    ptx::wgmma_few_values(sums, ptx::matrix_descriptor_128b(v_tile, 2048, 1024),
                          ptx::matrix_descriptor(p_tile, 128, 128), i > 0);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(sums);
  for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = sums[0][i];
}
#endif
