// Conversions and shifts that C++ does not define.

// launch: 1, 32
extern "C" __global__ void nan_to_int(const float* x, float* y, float* part, int* flags) {
  const float nan = (x[0] - x[0]) / (x[0] - x[0]);
  flags[threadIdx.x] = int(nan);  // expect: undefined
}
// launch: 1, 32
extern "C" __global__ void large_to_int(const float* x, float* y, float* part, int* flags) {
  flags[threadIdx.x] = int((x[0] - x[0] + 1) * 1e20f);  // expect: undefined
}
// launch: 1, 32
extern "C" __global__ void negative_to_unsigned(const float* x, float* y, float* part, int* flags) {
  flags[threadIdx.x] = int(unsigned(x[0] - x[0] - 5.0f));  // expect: undefined
}
// launch: 1, 32
extern "C" __global__ void converts_by_name(const float* x, float* y, float* part, int* flags) {
  const float zero = x[0] - x[0];
  flags[threadIdx.x] = __float2int_rz(zero / zero) + __float2int_rn((zero + 1) * 1e20f) + int(zero - 0.5f);
}
// launch: 1, 64
extern "C" __global__ void shifts_by_all_bits(const float* x, float* y, float* part, int* flags) {
  flags[threadIdx.x] = int(1u << threadIdx.x);  // expect: undefined
}
// launch: 1, 33
extern "C" __global__ void mask_of_all_lanes(const float* x, float* y, float* part, int* flags) {
  flags[threadIdx.x] = int((1u << threadIdx.x) - 1);  // expect: undefined
}
// launch: 1, 32
extern "C" __global__ void shifts_back_by_less_than_none(const float* x, float* y, float* part, int* flags) {
  flags[threadIdx.x] = 1024 >> (int(threadIdx.x) - 8);  // expect: undefined
}
// launch: 1, 64
extern "C" __global__ void shifts_of_64_bits(const float* x, float* y, float* part, int* flags) {
  flags[threadIdx.x] = int((1ull << threadIdx.x) >> 32) + (-7 << threadIdx.x % 32 >> 31);
}
