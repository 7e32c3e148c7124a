// Products on tensor cores, and loads of their operands into registers: part of mini_dnn/ptx.cuh, which includes it.
#pragma once

namespace ptx {

// ---- Products of a warp: d (16,8) += a (16,k) b (k,8), fp32 sums. "Matrix Fragments for mma.m16n8k8", "... m16n8k16".
// Lane 4 g + t holds columns 2 t and 2 t + 1 of d, in rows g (d[0..1]) and g + 8 (d[2..3]). A register of halves holds
// two consecutive k, the first in its low bits.

// Halves, k = 8. a: rows g, g + 8, k = 2t, 2t + 1. b: k = 2t, 2t + 1, column g.
__device__ __forceinline__ void mma_m16n8k8(float (&d)[4], unsigned a0, unsigned a1, unsigned b0) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(b0));
}

// Halves, k = 16: a[2..3] and b[1] are as a[0..1] and b[0], eight k further. Before sm_80, it is two products with k =
// 8.
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
// Bfloats, k = 16: fragments as of mma_m16n8k16. sm_80.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
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
// the address of row r of matrix i, a multiple of 16 bytes; lane 4 g + t gets row g, columns 2 t and 2 t + 1 of matrix
// i in d[i], or with _trans column g, rows 2 t and 2 t + 1. The addresses of other lanes are not used, but on sm_75
// they must be valid, too.

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

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// ---- The reverse of ldmatrix: stores registers, 8 x 8 halves each, to the rows of shared memory whose addresses lanes
// pass. "Warp-level matrix instructions: stmatrix". sm_90.

__device__ __forceinline__ void stmatrix(void* row, const unsigned (&d)[1]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(shared_address(row)), "r"(d[0]) : "memory");
}
__device__ __forceinline__ void stmatrix(void* row, const unsigned (&d)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)), "r"(d[0]),
               "r"(d[1])
               : "memory");
}
__device__ __forceinline__ void stmatrix(void* row, const unsigned (&d)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(d[0]),
               "r"(d[1]), "r"(d[2]), "r"(d[3])
               : "memory");
}
__device__ __forceinline__ void stmatrix_trans(void* row, const unsigned (&d)[1]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(shared_address(row)), "r"(d[0])
               : "memory");
}
__device__ __forceinline__ void stmatrix_trans(void* row, const unsigned (&d)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)), "r"(d[0]),
               "r"(d[1])
               : "memory");
}
__device__ __forceinline__ void stmatrix_trans(void* row, const unsigned (&d)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(d[0]), "r"(d[1]), "r"(d[2]), "r"(d[3])
               : "memory");
}
#endif

}  // namespace ptx
