// A shared array of a function that is not a template, in libraries with different versions of the function.
__device__ __forceinline__ void reverse(int* x) {
  __shared__ int held[32];
  held[threadIdx.x] = x[threadIdx.x] + ADDED;
  __syncthreads();
  x[threadIdx.x] = held[31 - threadIdx.x];
}

extern "C" __global__ void turn(int* x) { reverse(x); }
