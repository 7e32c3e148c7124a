// Products of a warpgroup (sm_90a): part of mini_dnn/ptx.cuh, which includes it.
#pragma once

namespace ptx {

// The type of an operand's elements: fp16 or bfloat16.
struct Half {
  static constexpr bool is_half = true;
};
struct Bfloat {
  static constexpr bool is_half = false;
};

#ifdef PTX_WGMMA
// ---- Products of a warpgroup: four warps, of which the first has a number that is divisible by four. Products run
// while the threads continue. "Asynchronous Warpgroup Level Matrix Instructions". b is in shared memory, and a is there
// or in registers.

// Describes a matrix that consists of core matrices of 8 columns by 8 k. Each has 128 contiguous bytes, column after
// column, and in a column k after k. `leading` is the number of bytes from a core matrix to the one of the next 8 k,
// and `stride` to the one of the next 8 columns; both are multiples of 16. "Matrix Descriptor Format", without
// swizzling. (For a, read "rows" for "columns".)
__device__ __forceinline__ unsigned long long matrix_descriptor(const void* b, unsigned leading, unsigned stride) {
  const unsigned long long address = shared_address(b) & 0x3ffff;
  return address >> 4 | (unsigned long long)(leading >> 4) << 16 | (unsigned long long)(stride >> 4) << 32;
}
// Describes a matrix in rows of 128 bytes with 128-byte swizzle, as tensor_load writes it: 8 rows are 1024 bytes, which
// start at a multiple of 1024, and piece c of 16 bytes of row r is at c ^ r. If the matrix is not transposed, a row has
// 64 k of one column: `stride` is the distance from 8 columns to the next 8, and `leading` is not read. If it is
// transposed, a row has 64 columns of one k: `stride` is the distance from 8 k to the next 8, and `leading` to the next
// 64 columns. Adding bytes >> 4 advances a descriptor: the next 16 k are 32 bytes further, or 2 * stride if the matrix
// is transposed.
__device__ __forceinline__ unsigned long long matrix_descriptor_128b(const void* p, unsigned leading, unsigned stride) {
  return matrix_descriptor(p, leading, stride) | 1ull << 62;
}
// Needed before the first product, and whenever a thread has written sums or a since: it orders these writes before the
// products that follow. Writes to shared memory need fence_proxy_async() and a barrier.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

#define PTX_SUMS_8(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define PTX_SUMS_24_FROM(d, i) PTX_SUMS_8(d, i), PTX_SUMS_8(d, i + 1), PTX_SUMS_8(d, i + 2)
#define PTX_SUMS_24(d) PTX_SUMS_24_FROM(d, 0)
#define PTX_SUMS_48(d) PTX_SUMS_24(d), PTX_SUMS_24_FROM(d, 3)
#define PTX_SUMS_72(d) PTX_SUMS_48(d), PTX_SUMS_24_FROM(d, 6)

// d (64,n) = a (64,16) b (16,n), or += with `accumulate`; halves, fp32 sums. Warp w of the four has rows 16 w to 16 w +
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

#define PTX_SUMS_32_FROM(d, i) PTX_SUMS_24_FROM(d, i), PTX_SUMS_8(d, i + 3)
#define PTX_SUMS_64(d) PTX_SUMS_32_FROM(d, 0), PTX_SUMS_32_FROM(d, 4)
#define PTX_SUMS_96(d) PTX_SUMS_64(d), PTX_SUMS_32_FROM(d, 8)
#define PTX_SUMS_128(d) PTX_SUMS_96(d), PTX_SUMS_32_FROM(d, 12)
#define PTX_SUMS_192(d) PTX_SUMS_128(d), PTX_SUMS_32_FROM(d, 16), PTX_SUMS_32_FROM(d, 20)
#define PTX_SUMS_256(d) PTX_SUMS_192(d), PTX_SUMS_32_FROM(d, 24), PTX_SUMS_32_FROM(d, 28)
#define PTX_REGISTERS_64                                                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define PTX_REGISTERS_96 \
  PTX_REGISTERS_64 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define PTX_REGISTERS_128 \
  PTX_REGISTERS_96 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PTX_REGISTERS_192                                                                                       \
  PTX_REGISTERS_128                                                                                             \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, " \
  "%85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define PTX_REGISTERS_256                                                                                      \
  PTX_REGISTERS_192                                                                                            \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, " \
  "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// `first` is the number of the first operand that follows the sums.
#define PTX_PRODUCT(n, type, first, second, third, fourth, fifth)                                                    \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #third ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type \
               "." type " {" PTX_REGISTERS_##n "}, %" #first ", %" #second ", p, 1, 1, %" #fourth ", %" #fifth "; }" \
               : PTX_SUMS_##n(d)                                                                                     \
               : "l"(a), "l"(b), "r"(int(accumulate)), "n"(transposed_a), "n"(transposed_b)                          \
               : "memory")
#define PTX_PRODUCT_OF(n, ...)                   \
  if constexpr (columns == n && Type::is_half) { \
    PTX_PRODUCT(n, "f16", __VA_ARGS__);          \
  } else if constexpr (columns == n) {           \
    PTX_PRODUCT(n, "bf16", __VA_ARGS__);         \
  }

// d (64,n) = a (64,16) b (16,n), or += with `accumulate`; both operands in shared memory, of the Type Half or Bfloat,
// with fp32 sums and d as above. If an operand is not transposed, the k of a row of a or a column of b are contiguous.
// If it is transposed, the rows or columns of a k are contiguous, and the descriptor is one of matrix_descriptor_128b.
// `accumulate` is the same for all threads.
template <int columns, class Type, bool transposed_a, bool transposed_b>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[columns / 8][4], unsigned long long a, unsigned long long b,
                                             bool accumulate) {
  static_assert(columns == 64 || columns == 96 || columns == 128 || columns == 192 || columns == 256,
                "the sizes that are written out here");
  PTX_PRODUCT_OF(64, 32, 33, 34, 35, 36)
  PTX_PRODUCT_OF(96, 48, 49, 50, 51, 52)
  PTX_PRODUCT_OF(128, 64, 65, 66, 67, 68)
  PTX_PRODUCT_OF(192, 96, 97, 98, 99, 100)
  PTX_PRODUCT_OF(256, 128, 129, 130, 131, 132)
}
// Closes a group: the products since the last commit.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most the `groups` latest groups are in flight. Operands of earlier ones may then be written again.
template <int groups>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}
// The same, if the sums d belong to an earlier group and are used after it.
template <int groups, int count>
__device__ __forceinline__ void wgmma_wait(float (&d)[count][4]) {
  wgmma_wait<groups>();
#pragma unroll
  for (int i = 0; i < count; i++)  // the compiler must not read them before
    asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}

// ---- The number of registers of a thread, set by all warps of a warpgroup: n is a multiple of 8 from 24 to 256. Some
// warpgroups release registers; others request more, and wait until enough are free. "Miscellaneous Instructions:
// setmaxnreg".
template <int n>
__device__ __forceinline__ void setmaxnreg_inc() {
  static_assert(n % 8 == 0 && n >= 24 && n <= 256, "registers: a multiple of 8 from 24 to 256");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}
template <int n>
__device__ __forceinline__ void setmaxnreg_dec() {
  static_assert(n % 8 == 0 && n >= 24 && n <= 256, "registers: a multiple of 8 from 24 to 256");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}
#endif

}  // namespace ptx
