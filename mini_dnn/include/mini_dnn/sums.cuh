// Stores of a matrix product's sums from a warp's registers: #include <mini_dnn/sums.cuh>
//
// A warp has 16 rows of c in the fragments of ptx::mma_m16n8k16 and ptx::wgmma_m64k16: d[i] of lane 4 g + t holds
// columns 8 i + 2 t and 8 i + 2 t + 1 of row g (d[i][0..1]) and of row g + 8 (d[i][2..3]).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>

#include <type_traits>

namespace sums {

// The data types of problems, as plans number them.
enum : int { fp32 = 0, fp16 = 1, bf16 = 2 };
template <int type>
using Element = std::conditional_t<type == fp32, float, std::conditional_t<type == fp16, half, __nv_bfloat16>>;

// The destination of sums: a matrix c of m rows of n elements, with a distance of `pitch` elements between rows.
template <class Out>
struct Matrix {
  const Out* c0;  // read only if beta is not 0
  Out* c;
  int m, n, pitch;
  float alpha, beta;
};

template <class T>
struct alignas(2 * sizeof(T)) Pair {
  T low, high;
};

// c = alpha d + beta c0 from the given row and column on, within c, directly from registers. Two elements are stored at
// a time if `pairs` says that rows start at multiples of two, beta is 0, and no column lies outside c.
template <bool pairs, class Out, int groups>
__device__ __forceinline__ void store(const float (&d)[groups][4], const Matrix<Out>& to, int row, int column) {
  const int lane = threadIdx.x % 32, left = to.n - column - lane % 4 * 2;
  const long long at = (long long)(row + lane / 4) * to.pitch + column + lane % 4 * 2;
  const bool plain = pairs && to.beta == 0.0f && column + 8 * groups <= to.n;  // no element needs a test
#pragma unroll
  for (int h = 0; h < 2; h++) {
    if (row + lane / 4 + 8 * h >= to.m) continue;
    const Out* const c0 = to.c0 + at + 8ll * h * to.pitch;
    Out* const c = to.c + at + 8ll * h * to.pitch;
    if (plain) {
#pragma unroll
      for (int i = 0; i < groups; i++)
        *reinterpret_cast<Pair<Out>*>(c + 8 * i) = {Out(to.alpha * d[i][2 * h]), Out(to.alpha * d[i][2 * h + 1])};
      continue;
    }
#pragma unroll
    for (int i = 0; i < groups; i++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        if (8 * i + j >= left) continue;
        const float sum = to.alpha * d[i][2 * h + j];
        c[8 * i + j] = Out(to.beta == 0.0f ? sum : sum + to.beta * float(c0[8 * i + j]));
      }
    }
  }
}

// Two sums rounded to 16 bits each, in the type Out.
template <class Out>
__device__ __forceinline__ unsigned pack(float low, float high) {
  if constexpr (std::is_same_v<Out, half>)
    return ptx::pack_halves(low, high);
  else
    return ptx::pack_bfloats(low, high);
}

#ifdef PTX_BULK
// Stores 64 columns, d[first] to d[first + 7], to 16 rows of 128 bytes in shared memory, with 128-byte swizzle.
template <class Out, int groups>
__device__ __forceinline__ void stage(const float (&d)[groups][4], int first, float alpha, char* rows) {
  // Rows of four matrices: rows 0 to 7, rows 8 to 15, then the same of the next 8 columns.
  const int lane = threadIdx.x % 32, row = lane % 16;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const float *const x = d[first + i], *const y = d[first + i + 1];
    const unsigned both[4] = {pack<Out>(alpha * x[0], alpha * x[1]), pack<Out>(alpha * x[2], alpha * x[3]),
                              pack<Out>(alpha * y[0], alpha * y[1]), pack<Out>(alpha * y[2], alpha * y[3])};
    ptx::stmatrix(rows + row * 128 + ((i + lane / 16) ^ row % 8) * 16, both);
  }
}

// Like store, for 16 bits and beta = 0, by tensor copies of 16 rows of 64 columns. `staged` is the warp's own 4 KB, at
// a multiple of 1024. A copy may still read them after the call: see ptx::bulk_wait_read.
template <class Out, int groups>
__device__ __forceinline__ void store_tensor(const float (&d)[groups][4], const ptx::TensorMap& c, float alpha,
                                             char* staged, int row, int column, int entry) {
  // If `parts` is odd, the last copy and the first one of the next call share a place.
  constexpr int parts = groups / 8, under_way = parts % 2 == 0 ? 1 : 0;
#pragma unroll
  for (int i = 0; i < parts; i++) {
    char* const rows = staged + i % 2 * 2048;
    if (threadIdx.x % 32 == 0) ptx::bulk_wait_read<under_way>();  // earlier copies have read their data
    __syncwarp();
    stage<Out>(d, 8 * i, alpha, rows);
    ptx::fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      ptx::tensor_store(c, column + 64 * i, row, entry, rows);
      ptx::bulk_commit();
    }
  }
}

// Like store, for 16 bits and beta = 0, if rows of c start at any address. Data pass through shared memory, so that a
// warp writes 128 bytes of a row at a time. `staged` is the warp's own 4 KB, at a multiple of 1024.
template <class Out, int groups>
__device__ __forceinline__ void store_rows(const float (&d)[groups][4], const Matrix<Out>& to, char* staged, int row,
                                           int column) {
  typedef unsigned short Bits;
  const int lane = threadIdx.x % 32;
  Bits* const corner = reinterpret_cast<Bits*>(to.c) + (long long)row * to.pitch + column;
  __syncwarp();  // all lanes have read the previous content
#pragma unroll
  for (int i = 0; i < groups / 8; i++) {
    char* const rows = staged + i % 2 * 2048;
    const int left = min(to.n - column - 64 * i, 64);
    stage<Out>(d, 8 * i, to.alpha, rows);
    __syncwarp();
#pragma unroll 4
    for (int r = 0; r < 16; r++) {
      if (row + r >= to.m) break;
      // A lane has two columns. If the row starts at an odd address, it writes its second column and the next lane's
      // first.
      Bits* const c = corner + (long long)r * to.pitch + 64 * i;
      const bool odd = reinterpret_cast<size_t>(c) & 2;
      const unsigned own =
          *reinterpret_cast<const unsigned*>(rows + r * 128 + ((lane / 4) ^ r % 8) * 16 + lane % 4 * 4);
      const unsigned next = __shfl_down_sync(~0u, own, 1);
      const unsigned both = odd ? own >> 16 | next << 16 : own;
      const int first = 2 * lane + odd;
      if (first + 1 < left)
        *reinterpret_cast<unsigned*>(c + first) = both;
      else if (first < left)
        c[first] = Bits(both);
      if (odd && lane == 0 && left > 0) c[0] = Bits(own);
    }
  }
}
#endif

}  // namespace sums
