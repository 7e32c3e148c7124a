// Small products of matrices as tensor cores make them: what the twins of all matrix instructions come to.
//
// Sums are formed as by Hopper's tensor cores, to the bit. An instruction takes 16 products of halves or bfloats, or 8
// of tf32 numbers, in one step (WMMA 4 of tf32): they and the sum so far are aligned to the largest exponent among
// them, each is cut off, toward zero, behind 25 binary places, and they are added exactly. The result is cut off where
// a float ends; a half is rounded to nearest even. Numbers below the normal ones are as good as others, results that
// are too large become infinite, NaN is 0x7fffffff, and sums that are or become zero are +0.
//
// Source: P. Xie et al., "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores", arXiv:2511.10909,
// which has other architectures, too: Ampere keeps 24 places, Turing 24, and both take 8 products of halves at a time.
#pragma once
#include "runtime_interface.h"

#pragma GCC visibility push(default)
namespace emulator {

enum class Element { half, bfloat, tf32 };  // what the floats of a and b are
// What c and d are. Halves, too, come and go as floats; what goes needs to be rounded to half, to nearest even.
enum class Accumulators { floats, halves };

// d (m,n) += a (m,k) b (k,n), in one step. m is a multiple of 8 up to 256; n is 8, 16 or 32; k is 4, 8 or 16, and 16
// where sums are halves.
void multiply(float* d, const float* a, const float* b, int m, int n, int k, Element element,
              Accumulators accumulators);

template <int m, int n, int k>
inline void multiply(float (&d)[m][n], const float (&a)[m][k], const float (&b)[k][n], Element element,
                     Accumulators accumulators = Accumulators::floats) {
  static_assert(m % 8 == 0 && m <= 256 && (n == 8 || n == 16 || n == 32) && (k == 4 || k == 8 || k == 16));
  multiply(d[0], a[0], b[0], m, n, k, element, accumulators);
}

// d (16,8) += a (16,k) b (k,8) of a warp, for warp_barrier: registers as in "Matrix Fragments for mma.m16n8k8" etc.
struct WarpProduct {
  Element element;  // and k are the same for all lanes
  int k;
  float* d;
  const unsigned *a, *b;
};
void mma_sync(void* const* products, unsigned arrived);

}  // namespace emulator
#pragma GCC visibility pop
