// The build includes this file before every kernel file and its definitions. What nvcc knows without an #include is
// visible immediately. half, bfloat16, wmma and groups are in separate namespaces until cuda_fp16.h, cuda_bf16.h, mma.h
// or cooperative_groups.h makes them visible.
#pragma once
#ifdef EMULATOR_SCAN  // the build's first pass only preprocesses, and looks for qualifiers in the user's file
#include "emulator/qualifiers.h"
#else
#include <new>  // nvcc includes it as well

#include "emulator/builtins.h"
#include "emulator/types.h"
#include "emulator/warp.h"
#include "emulator/groups.h"
#include "emulator/groups_lacks.h"
#include "emulator/groups_reduce.h"
#include "emulator/atomics.h"
#include "emulator/math.h"
#include "emulator/rounding.h"
#include "emulator/integers.h"
#include "emulator/half.h"
#include "emulator/bfloat.h"
#include "emulator/wmma.h"
#include "emulator/ptx.h"
#include "emulator/ptx_cluster.h"
#include "emulator/launch.h"

#include "assert.h"  // so does nvcc; last, because a header of the system may define another assert
// __attribute__((noinline)), like __noinline__, would keep a function out of its kernel: see `_descriptions` in
// build.py
#define noinline __unused__
#define __builtin_assume(...) static_cast<void>(0)
#define __assume(...) static_cast<void>(0)
#endif
