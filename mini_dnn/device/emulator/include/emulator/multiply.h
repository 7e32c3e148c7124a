// Small matrix products as tensor cores compute them. All emulated matrix instructions use them.
//
// Sums have the same bits as those of Hopper's tensor cores. An instruction adds 16 products of halves or bfloats, or 8
// of tf32 numbers, in one step (WMMA: 4 of tf32). The products and the current sum are aligned to the largest of their
// exponents, truncated toward zero after 25 binary places, and then added exactly. The result is truncated to a float;
// a half is rounded to nearest even instead. Subnormal numbers count in full, results that are too large become
// infinite, NaN is 0x7fffffff, and sums of zeros, or sums that become zero, are +0.
//
// Source: P. Xie et al., "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores", arXiv:2511.10909. It
// also describes other architectures: Ampere and Turing keep 24 places, and both add 8 products of halves at a time.
#pragma once
#include "runtime_interface.h"

#pragma GCC visibility push(default)
namespace emulator {

enum class Element { half, bfloat, tf32 };  // the type of a and b
// The type of c and d. Halves are also passed as floats; results must be rounded to half, to nearest even.
enum class Accumulators { floats, halves };

// d (m,n) += a (m,k) b (k,n), in one step. m is a multiple of 8 up to 256. n is 8, 16 or 32. k is 4, 8 or 16; it must
// be 16 if sums are halves.
void multiply(float* d, const float* a, const float* b, int m, int n, int k, Element element,
              Accumulators accumulators);

template <int m, int n, int k>
inline void multiply(float (&d)[m][n], const float (&a)[m][k], const float (&b)[k][n], Element element,
                     Accumulators accumulators = Accumulators::floats) {
  static_assert(m % 8 == 0 && m <= 256 && (n == 8 || n == 16 || n == 32) && (k == 4 || k == 8 || k == 16));
  multiply(d[0], a[0], b[0], m, n, k, element, accumulators);
}

// d (16,8) += a (16,k) b (k,8) of a warp, for warp_barrier. Registers are as in "Matrix Fragments for mma.m16n8k8" etc.
struct WarpProduct {
  Element element;  // like k, it is the same for all lanes
  int k;
  float* d;
  const unsigned *a, *b;
};
void mma_sync(void* const* products, unsigned arrived);

}  // namespace emulator
#pragma GCC visibility pop
