// Products on tensor cores, and how their operands get into registers: part of mini_dnn/ptx.cuh, which includes it.
#pragma once

namespace ptx {

// ---- Products of a warp: d (16,8) += a (16,k) b (k,8), fp32 sums. "Matrix Fragments for mma.m16n8k8", "... m16n8k16".
// Lane 4 g + t holds of d rows g and g + 8 (d[0..1], d[2..3]), columns 2 t and 2 t + 1. A register of halves holds two
// consecutive k, the first in its low bits.

// Halves, k = 8. a: rows g, g + 8, k = 2t, 2t + 1. b: k = 2t, 2t + 1, column g.
__device__ __forceinline__ void mma_m16n8k8(float (&d)[4], unsigned a0, unsigned a1, unsigned b0) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(b0));
}

// Halves, k = 16: a[2..3] and b[1] are as a[0..1] and b[0], eight k further. Before sm_80 as two of k = 8.
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  mma_m16n8k8(d, a[0], a[1], b[0]);
  mma_m16n8k8(d, a[2], a[3], b[1]);
#endif
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
// TF32, k = 8, operands as bits of floats, whose low 13 bits are not read. sm_80.
// a: rows g, g + 8 at k = t (a[0..1]), then at k = t + 4 (a[2..3]). b: k = t, t + 4, column g.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// ---- Matrices of 8 x 8 halves from shared memory. "Warp-level matrix load instruction: ldmatrix". Lane 8 i + r passes
// the address of row r of matrix i, a multiple of 16 bytes; lane 4 g + t gets as d[i] row g, columns 2 t and 2 t + 1 of
// matrix i, with _trans column g, rows 2 t and 2 t + 1.

__device__ __forceinline__ void ldmatrix(unsigned (&d)[1], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(d[0])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix(unsigned (&d)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(d[0]), "=r"(d[1])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix(unsigned (&d)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_trans(unsigned (&d)[1], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(d[0])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_trans(unsigned (&d)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(d[0]), "=r"(d[1])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_trans(unsigned (&d)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(shared_address(row))
               : "memory");
}

#ifdef PTX_WGMMA
// ---- Products of a warpgroup, four warps whose first one is a multiple of four, which run on while its threads work.
// "Asynchronous Warpgroup Level Matrix Instructions". b lies in shared memory, as core matrices of 8 columns by 8 k:
// 128 bytes in one piece, column after column, of a column k after k.

// Where b is: `leading` bytes from a core matrix to that of the next 8 k, `stride` to that of the next 8 columns; all
// multiples of 16. "Matrix Descriptor Format", without swizzling.
__device__ __forceinline__ unsigned long long matrix_descriptor(const void* b, unsigned leading, unsigned stride) {
  const unsigned long long address = shared_address(b) & 0x3ffff;
  return address >> 4 | (unsigned long long)(leading >> 4) << 16 | (unsigned long long)(stride >> 4) << 32;
}
// Before the first product, and wherever a thread has written sums or a since: orders that before products that follow.
// What was written to shared memory needs fence_proxy_async() and a barrier.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

#define PTX_SUMS_8(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define PTX_SUMS_24_FROM(d, i) PTX_SUMS_8(d, i), PTX_SUMS_8(d, i + 1), PTX_SUMS_8(d, i + 2)
#define PTX_SUMS_24(d) PTX_SUMS_24_FROM(d, 0)
#define PTX_SUMS_48(d) PTX_SUMS_24(d), PTX_SUMS_24_FROM(d, 3)
#define PTX_SUMS_72(d) PTX_SUMS_48(d), PTX_SUMS_24_FROM(d, 6)

// d (64,n) = or with `accumulate` += a (64,16) b (16,n), halves, fp32 sums. Warp w of the four has rows 16 w to 16 w +
// 15 of a and d, in fragments as of mma_m16n8k16: d[i] is columns 8 i to 8 i + 7. d may be read after the wait for it.
template <int n, bool accumulate>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[n / 8][4], const unsigned (&a)[4], unsigned long long b) {
  static_assert(n == 24 || n == 48 || n == 72, "the sizes that are written out here");
  if constexpr (n == 24) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11}, {%12, "
        "%13, %14, %15}, %16, %17, 1, 1, 0;"
        : PTX_SUMS_24(d)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(accumulate)
        : "memory");
  } else if constexpr (n == 48) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, {%24, %25, %26, %27}, %28, %29, 1, 1, 0;"
        : PTX_SUMS_48(d)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(accumulate)
        : "memory");
  } else if constexpr (n == 72) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n72k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "
        "%35}, {%36, %37, %38, %39}, %40, %41, 1, 1, 0;"
        : PTX_SUMS_72(d)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(accumulate)
        : "memory");
  }
}
// Closes a group: the products since the last commit.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most the `groups` latest groups are under way; the sums d are of an earlier one.
template <int groups, int count>
__device__ __forceinline__ void wgmma_wait(float (&d)[count][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
#pragma unroll
  for (int i = 0; i < count; i++)  // the compiler must not read them before
    asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}
#endif

}  // namespace ptx
