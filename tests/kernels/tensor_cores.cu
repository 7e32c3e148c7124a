// Each matrix instruction once per block: d = a b + c for tiles that are consecutive in memory, row by row. Halves and
// bfloats have 16 bits, and tf32 numbers 32.
#include <mini_dnn/ptx.cuh>
#include <mma.h>

using namespace nvcuda;

// The register that holds the element at p, and with halves the one `next` elements on.
template <class Bits>
__device__ unsigned element(const Bits* p, int next) {
  return sizeof(Bits) == 4 ? p[0] : p[0] | unsigned(p[next]) << 16;
}

// Calls product(registers of d, a, b) between loads and stores of fragments: "Matrix Fragments for mma.m16n8k8" etc.
template <int k, class Bits, class Product>
__device__ void warp_product(const Bits* a, const Bits* b, const float* c, float* d, Product product) {
  constexpr int per_register = 4 / sizeof(Bits), quarters = k / per_register / 4;
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  a += blockIdx.x * 16 * k, b += blockIdx.x * k * 8, c += blockIdx.x * 16 * 8, d += blockIdx.x * 16 * 8;
  unsigned a_registers[2 * quarters], b_registers[quarters];
  for (int i = 0; i < quarters; i++) {
    const int l = (4 * i + t) * per_register;
    a_registers[2 * i] = element(a + g * k + l, 1);
    a_registers[2 * i + 1] = element(a + (g + 8) * k + l, 1);
    b_registers[i] = element(b + l * 8 + g, 8);
  }
  float sums[4];
  for (int i = 0; i < 4; i++) sums[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  product(sums, a_registers, b_registers);
  for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

typedef const unsigned short* Halves;

extern "C" __global__ void mma_k8(Halves a, Halves b, const float* c, float* d) {
  warp_product<8>(a, b, c, d, [](float (&sums)[4], const unsigned (&a)[2], const unsigned (&b)[1]) {
    ptx::mma_m16n8k8(sums, a[0], a[1], b[0]);
  });
}
extern "C" __global__ void mma_k16(Halves a, Halves b, const float* c, float* d) {
  warp_product<16>(a, b, c, d, [](float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    ptx::mma_m16n8k16(sums, a, b);
  });
}

template <class T, int M, int N, int K, class C, class D, class Bits>
__device__ void tiles(const Bits* a, const Bits* b, const C* c, D* d) {
  wmma::fragment<wmma::matrix_a, M, N, K, T, wmma::row_major> fragment_a;
  wmma::fragment<wmma::matrix_b, M, N, K, T, wmma::row_major> fragment_b;
  wmma::fragment<wmma::accumulator, M, N, K, C> fragment_c;
  wmma::fragment<wmma::accumulator, M, N, K, D> fragment_d;
  wmma::load_matrix_sync(fragment_a, a + blockIdx.x * M * K, K);
  wmma::load_matrix_sync(fragment_b, b + blockIdx.x * K * N, N);
  wmma::load_matrix_sync(fragment_c, c + blockIdx.x * M * N, N, wmma::mem_row_major);
  wmma::mma_sync(fragment_d, fragment_a, fragment_b, fragment_c);
  wmma::store_matrix_sync(d + blockIdx.x * M * N, fragment_d, N, wmma::mem_row_major);
}
extern "C" __global__ void wmma_float(const half* a, const half* b, const float* c, float* d) {
  tiles<half, 16, 16, 16>(a, b, c, d);
}
extern "C" __global__ void wmma_wide(const half* a, const half* b, const float* c, float* d) {
  tiles<half, 8, 32, 16>(a, b, c, d);
}
extern "C" __global__ void wmma_tall(const half* a, const half* b, const float* c, float* d) {
  tiles<half, 32, 8, 16>(a, b, c, d);
}
extern "C" __global__ void wmma_half(const half* a, const half* b, const half* c, half* d) {
  tiles<half, 16, 16, 16>(a, b, c, d);
}
extern "C" __global__ void wmma_float_to_half(const half* a, const half* b, const float* c, half* d) {
  tiles<half, 16, 16, 16>(a, b, c, d);
}
extern "C" __global__ void wmma_half_to_float(const half* a, const half* b, const half* c, float* d) {
  tiles<half, 16, 16, 16>(a, b, c, d);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
extern "C" __global__ void mma_bfloat(Halves a, Halves b, const float* c, float* d) {
  warp_product<16>(a, b, c, d, [](float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    ptx::mma_m16n8k16_bf16(sums, a, b);
  });
}
extern "C" __global__ void mma_tf32(const unsigned* a, const unsigned* b, const float* c, float* d) {
  warp_product<8>(a, b, c, d, [](float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    ptx::mma_m16n8k8_tf32(sums, a, b);
  });
}
extern "C" __global__ void wmma_tf32(const float* a, const float* b, const float* c, float* d) {
  tiles<wmma::precision::tf32, 16, 16, 8>(a, b, c, d);
}
#endif

#ifdef PTX_WGMMA
// b (16,n), and a (64,16) where it is not in registers, are core matrices of 8 k by 8 rows or columns, k first.
template <int n, class Product>
__device__ void warpgroup_product(const uint4* a, const uint4* b, const float* c, float* d, Product product) {
  __shared__ __align__(128) uint4 a_cores[128], b_cores[2 * n];
  a_cores[threadIdx.x] = a[blockIdx.x * 128 + threadIdx.x];
  for (int i = threadIdx.x; i < 2 * n; i += 128) b_cores[i] = b[blockIdx.x * 2 * n + i];
  ptx::fence_proxy_async();
  __syncthreads();
  c += blockIdx.x * 64 * n, d += blockIdx.x * 64 * n;
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  float sums[n / 8][4];
  for (int i = 0; i < n / 8; i++)
    for (int j = 0; j < 4; j++) sums[i][j] = c[(row + j / 2 * 8) * n + 8 * i + column + j % 2];
  ptx::wgmma_fence();
  product(sums, a_cores, ptx::matrix_descriptor(a_cores, 128, 256), ptx::matrix_descriptor(b_cores, 128, 256));
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(sums);
  for (int i = 0; i < n / 8; i++)
    for (int j = 0; j < 4; j++) d[(row + j / 2 * 8) * n + 8 * i + column + j % 2] = sums[i][j];
}
extern "C" __global__ void __launch_bounds__(128)
    wgmma_registers(const uint4* a, const uint4* b, const float* c, float* d) {
  warpgroup_product<24>(a, b, c, d, [](float (&sums)[3][4], const uint4* a, unsigned long long, unsigned long long b) {
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    unsigned registers[4];
    for (int i = 0; i < 4; i++) {
      const int r = row + i % 2 * 8;
      registers[i] = reinterpret_cast<const unsigned*>(a + r / 8 * 16 + i / 2 * 8 + r % 8)[threadIdx.x % 4];
    }
    ptx::wgmma_m64k16<24, true>(sums, registers, b);
  });
}
extern "C" __global__ void __launch_bounds__(128) wgmma_half(const uint4* a, const uint4* b, const float* c, float* d) {
  warpgroup_product<64>(a, b, c, d, [](float (&sums)[8][4], const uint4*, unsigned long long a, unsigned long long b) {
    ptx::wgmma_m64k16<64, ptx::Half, false, false>(sums, a, b, true);
  });
}
extern "C" __global__ void __launch_bounds__(128)
    wgmma_bfloat(const uint4* a, const uint4* b, const float* c, float* d) {
  warpgroup_product<64>(a, b, c, d, [](float (&sums)[8][4], const uint4*, unsigned long long a, unsigned long long b) {
    ptx::wgmma_m64k16<64, ptx::Bfloat, false, false>(sums, a, b, true);
  });
}
#endif
