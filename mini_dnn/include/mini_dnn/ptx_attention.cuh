// PTX for attention kernels, in addition to mini_dnn/ptx.cuh: #include <mini_dnn/ptx_attention.cuh>
//
// Powers of two, transposed fragments, and products of a warpgroup with the sizes of scores and values. The emulator
// has equivalents, as for mini_dnn/ptx.cuh. Comments cite sections of the PTX ISA by their titles.
#pragma once
#include <mini_dnn/ptx.cuh>

#ifdef MINI_DNN_EMULATOR
#include <emulator/ptx_attention.h>
#else

namespace ptx {

// 2^x with a relative error of at most 2^-22; results below 2^-126 become 0. "Floating Point Instructions: ex2".
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
// A matrix of 8 x 8 halves, transposed: lane 4 g + t has row g, columns 2 t and 2 t + 1, before and after. "Warp-level
// matrix transpose instruction: movmatrix". sm_75.
__device__ __forceinline__ unsigned transpose_8x8(unsigned pair) {
  unsigned turned;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
  return turned;
}
#endif

#ifdef PTX_WGMMA
// ---- Products of a warpgroup, with the rules of mini_dnn/ptx_warpgroup.cuh. Halves, fp32 sums.

#define PTX_NUMBERS_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define PTX_PART_16(d) PTX_SUMS_8(d, 0), PTX_SUMS_8(d, 1)
#define PTX_NUMBERS_32 PTX_NUMBERS_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define PTX_PART_32(d) PTX_PART_16(d), PTX_SUMS_8(d, 2), PTX_SUMS_8(d, 3)
#define PTX_NUMBERS_48 PTX_NUMBERS_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define PTX_PART_48(d) PTX_PART_32(d), PTX_SUMS_8(d, 4), PTX_SUMS_8(d, 5)
#define PTX_NUMBERS_64 PTX_NUMBERS_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define PTX_PART_64(d) PTX_PART_48(d), PTX_SUMS_8(d, 6), PTX_SUMS_8(d, 7)
#define PTX_NUMBERS_80 PTX_NUMBERS_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define PTX_PART_80(d) PTX_PART_64(d), PTX_SUMS_8(d, 8), PTX_SUMS_8(d, 9)
#define PTX_NUMBERS_96 PTX_NUMBERS_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define PTX_PART_96(d) PTX_PART_80(d), PTX_SUMS_8(d, 10), PTX_SUMS_8(d, 11)
#define PTX_NUMBERS_112 PTX_NUMBERS_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define PTX_PART_112(d) PTX_PART_96(d), PTX_SUMS_8(d, 12), PTX_SUMS_8(d, 13)
#define PTX_NUMBERS_128 PTX_NUMBERS_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define PTX_PART_128(d) PTX_PART_112(d), PTX_SUMS_8(d, 14), PTX_SUMS_8(d, 15)

// `first` is the number of the first operand that follows the sums.
#define PTX_SCORES(n, first, second, third)                                                                            \
  if constexpr (columns == n)                                                                                          \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" PTX_NUMBERS_##n "}, %" #first ", %" #second  \
                                                                                          ", %" #third ", 1, 1, 0, 0;" \
               : PTX_PART_##n(d)                                                                                       \
               : "l"(a), "l"(b), "n"(accumulate)                                                                       \
               : "memory")

// d (64,columns) = a (64,16) b (16,columns), or += with `accumulate`; both operands in shared memory with contiguous k:
// queries times keys. d may have room for more columns.
template <int columns, bool accumulate, int groups>
__device__ __forceinline__ void wgmma_scores(float (&d)[groups][4], unsigned long long a, unsigned long long b) {
  static_assert(columns % 16 == 0 && columns >= 16 && columns <= 112, "the sizes that are written out here");
  static_assert(columns / 8 <= groups, "d has no room for so many columns");
  PTX_SCORES(16, 8, 9, 10);
  PTX_SCORES(32, 16, 17, 18);
  PTX_SCORES(48, 24, 25, 26);
  PTX_SCORES(64, 32, 33, 34);
  PTX_SCORES(80, 40, 41, 42);
  PTX_SCORES(96, 48, 49, 50);
  PTX_SCORES(112, 56, 57, 58);
}

#define PTX_VALUES(n, first, second, third, fourth, fifth, sixth)                                          \
  if constexpr (columns == n)                                                                              \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #sixth ", 0; wgmma.mma_async.sync.aligned.m64n" #n       \
               "k16.f32.f16.f16 {" PTX_NUMBERS_##n "}, {%" #first ", %" #second ", %" #third ", %" #fourth \
                                                   "}, %" #fifth ", p, 1, 1, 1; }"                         \
               : PTX_PART_##n(d)                                                                           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate))                  \
               : "memory")

// d (64,columns) = a (64,16) b (16,columns), or += with `accumulate`; a in registers, in fragments like those of
// mma_m16n8k16; b in shared memory, where the columns of a k are contiguous: weights times values.
template <int columns>
__device__ __forceinline__ void wgmma_values(float (&d)[columns / 8][4], const unsigned (&a)[4], unsigned long long b,
                                             bool accumulate) {
  static_assert(columns == 32 || columns == 64 || columns == 128, "the sizes that are written out here");
  PTX_VALUES(32, 16, 17, 18, 19, 20, 21);
  PTX_VALUES(64, 32, 33, 34, 35, 36, 37);
  PTX_VALUES(128, 64, 65, 66, 67, 68, 69);
}
#endif

}  // namespace ptx
#endif
