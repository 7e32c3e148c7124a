// Kernels with every kind of parameter, and some that cannot be launched.
#include <cuda_fp16.h>

struct Pair {
  int a, b;
};

extern "C" __global__ void __launch_bounds__(256)
    all_kinds(double* out, char c, short s, int i, unsigned u, long long ll, half h, float f, double d, bool b) {
  const double values[] = {double(c), double(s), double(i), double(u), double(ll), double(float(h)), f, d, double(b)};
  for (int k = 0; k < 9; k++) out[k] = values[k];
}
extern "C" {
void __global__ in_a_block(const float* __restrict__ x, int n) {}
__global__ void also_in_a_block();
}
__global__ void also_in_a_block() {}
extern "C" __global__ void by_value(Pair p) {}

__global__ void mangled(int n) {}
template <int n>
__global__ void templated(float* x) {}
// extern "C" __global__ void in_a_comment() {}
const char* text = "extern \"C\" __global__ void in_a_string() {";
#if 0
extern "C" __global__ void left_out_by_the_preprocessor() {}
#endif
#define KERNEL(name) \
  extern "C" __global__ void name##_made_by_a_macro(int n) {}
KERNEL(first)
