// Products of a warpgroup with both operands in shared memory. COLUMNS, TYPE, TRANSPOSED_A, TRANSPOSED_B are macros.
#include <mini_dnn/ptx_widths.cuh>

#if COLUMNS < 64
#define PRODUCT wgmma_narrow
#elif COLUMNS == 144
#define PRODUCT wgmma_any_width
#else
#define PRODUCT wgmma_m64k16
#endif

#ifdef PTX_WGMMA
extern __shared__ unsigned char memory[];

// d [register][thread] = or += products of 16 k each of what lies in shared memory; `rows` bytes from the 64 rows of a
// warpgroup to those of the next.
extern "C" __global__ void __launch_bounds__(256)
    product(const uint4* image, float* d, int vectors, int products, int accumulate, int plain, unsigned start_a,
            unsigned leading_a, unsigned stride_a, unsigned step_a, unsigned rows, unsigned start_b, unsigned leading_b,
            unsigned stride_b, unsigned step_b) {
  unsigned char* const base = memory + (-reinterpret_cast<size_t>(memory) & 1023);
  for (int i = threadIdx.x; i < vectors; i += blockDim.x) reinterpret_cast<uint4*>(base)[i] = image[i];
  ptx::fence_proxy_async();
  __syncthreads();
  float sums[COLUMNS / 8][4];
  for (int i = 0; i < COLUMNS / 2; i++) sums[i / 4][i % 4] = d[i * blockDim.x + threadIdx.x];
  const unsigned char *const a = base + start_a + threadIdx.x / 128 * rows, *const b = base + start_b;
  unsigned long long matrix_a, matrix_b;
  if (plain)
    matrix_a = ptx::matrix_descriptor(a, leading_a, stride_a),
    matrix_b = ptx::matrix_descriptor(b, leading_b, stride_b);
  else
    matrix_a = ptx::matrix_descriptor_128b(a, leading_a, stride_a),
    matrix_b = ptx::matrix_descriptor_128b(b, leading_b, stride_b);
  for (int i = 0; i < products; i++) {
    ptx::wgmma_fence();
    ptx::PRODUCT<COLUMNS, ptx::TYPE, TRANSPOSED_A, TRANSPOSED_B>(sums, matrix_a + i * (step_a >> 4),
                                                                 matrix_b + i * (step_b >> 4), i || accumulate);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();  // the one before is over
  }
  ptx::wgmma_wait<0>(sums);
  for (int i = 0; i < COLUMNS / 2; i++) d[i * blockDim.x + threadIdx.x] = sums[i / 4][i % 4];
}

// A warpgroup gives registers to another, or makes the mistake `which`.
extern "C" __global__ void __launch_bounds__(256, 1) registers(int* out, int which) {
  const int warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32;
  if (which == 1 ? warp > 1 : warpgroup)
    ptx::setmaxnreg_inc<240>();
  else if (which != 2 || threadIdx.x % 32 < 16)
    ptx::setmaxnreg_dec<40>();
  out[threadIdx.x] = warpgroup;
}

extern "C" __global__ void misused(float* out, int which) {
  unsigned char* const base = memory + (-reinterpret_cast<size_t>(memory) & 1023);
  for (int i = threadIdx.x; i < 8192; i += blockDim.x) reinterpret_cast<unsigned*>(base)[i] = 0;
  if (which != 5) ptx::fence_proxy_async();
  __syncthreads();
  float sums[COLUMNS / 8][4] = {};
  unsigned long long a = ptx::matrix_descriptor_128b(base, 0, 1024), b = ptx::matrix_descriptor_128b(base, 0, 1024);
  if (which == 0) ptx::matrix_descriptor_128b(base + 128, 0, 1024);
  if (which == 1) a += 128 >> 4;
  if (which == 2) b = ptx::matrix_descriptor(base, 128, 1024);
  if (which == 3) a += threadIdx.x % 32 / 16 * 2;
  const bool accumulate = which == 4 && threadIdx.x % 32 < 16;
  ptx::wgmma_fence();
  if (which == 2)
    ptx::PRODUCT<COLUMNS, ptx::TYPE, false, true>(sums, a, b, true);
  else
    ptx::PRODUCT<COLUMNS, ptx::TYPE, false, false>(sums, a, b, accumulate);  // here
  ptx::wgmma_commit();
  if (which == 6) base[0] = 1;  // too early
  ptx::wgmma_wait<0>(sums);
  out[threadIdx.x] = sums[0][0];
}
#endif
