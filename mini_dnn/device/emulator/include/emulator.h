// Put before every kernel file, and before its defines, by the build. What nvcc knows without an #include is visible
// at once; half, bfloat16, wmma and groups wait in namespaces of their own for cuda_fp16.h, cuda_bf16.h, mma.h and
// cooperative_groups.h.
#pragma once
#ifdef EMULATOR_SCAN  // the build's first pass is the preprocessor's alone, and looks for qualifiers in the user's file
#include "emulator/qualifiers.h"
#else
#include <new>  // nvcc includes it, too

#include "emulator/builtins.h"
#include "emulator/types.h"
#include "emulator/warp.h"
#include "emulator/groups.h"
#include "emulator/groups_lacks.h"
#include "emulator/groups_reduce.h"
#include "emulator/atomics.h"
#include "emulator/math.h"
#include "emulator/integers.h"
#include "emulator/half.h"
#include "emulator/bfloat.h"
#include "emulator/wmma.h"
#include "emulator/ptx.h"
#include "emulator/ptx_cluster.h"
#include "emulator/launch.h"
// __attribute__((noinline)), as __noinline__, would keep a function out of its kernel: see `_descriptions` in build.py
#define noinline __unused__
#define __builtin_assume(...) static_cast<void>(0)
#define __assume(...) static_cast<void>(0)
#endif
