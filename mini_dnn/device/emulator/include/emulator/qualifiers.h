// Words of CUDA C++ that are macros here: qualifiers, macros that identify the compiler, and words of the C library.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define __CUDACC__ 1
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1  // as for sm_90a
#ifndef EMULATOR_WORDS               // preprocesses the kernel file as nvcc sees it
#define MINI_DNN_EMULATOR 1          // for the emulator's side of a wrapper of inline PTX
#endif

#ifndef EMULATOR_SCAN  // the build's first pass looks for these words
#define __global__ __attribute__((visibility("default"), used))
// One block runs on one operating-system thread at a time, so the shared memory of a block belongs to that thread.
#define __shared__ thread_local
#endif
#ifndef EMULATOR_WORDS
#define __host__
#define __device__ __attribute__((visibility("default")))
// `used` also tells g++ that others write it: a constant array without an initialiser does not stay zero.
#define __constant__ __attribute__((visibility("default"), used))
#define __managed__ __attribute__((visibility("default")))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__  // see `_descriptions` in build.py
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#endif
#define __maxnreg__(n)
#define __grid_constant__
#define __cluster_dims__(...) _Pragma("GCC error \"clusters are given in the plan: Launch(..., cluster=2)\"")
