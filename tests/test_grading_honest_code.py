"""Kernel files compiled for checked mode: no honest file is refused, nor any shipped kernel."""

# ruff: noqa: E501
from __future__ import annotations

from pathlib import Path

import pytest
from judged_kernels import ALONE, RETURNS, judged, needs_x86_64
from shipped import CHECKABLE, small_problem

from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.grading.confined import imports
from mini_dnn.variant import find

pytestmark = needs_x86_64

HONEST = {
    "plain": ("", "x[i] += 1"),
    "structures by value": (
        "struct P { float a, b, c; };\n__device__ float f(P p) { return p.a + p.c; }",
        "x[i] = f(((P*)x)[i])",
    ),
    "structures returned": (
        "struct P { float a[6]; };\n" + ALONE + " __device__ P f(float s) { return {{s, s, s, s, s, s}}; }",
        "x[i] = f(x[i]).a[n % 6]",
    ),
    "structures returned, through others": (
        RETURNS + "\n" + ALONE + " __device__ P g(float s) { return f(s + 1); }",
        "x[i] = g(x[i]).a[n % 6] + f(x[i]).a[n % 5]",
    ),
    "structures returned, to an aligned frame": (
        RETURNS + "\nstruct alignas(64) V { float a[16]; };",
        "V v = {}; for (int j = 0; j < 16; j++) v.a[j] = x[j]; x[i] = f(v.a[n & 15]).a[n % 6]",
    ),
    "structures returned, by a table": (
        RETURNS + "\n" + ALONE + " __device__ P g(float s) { return {{s, s, 2, s, s, s}}; }\n"
        "using F = P (*)(float);\n__device__ constexpr F table[] = {f, g};",
        "x[i] = table[n & 1](x[i]).a[n % 6]",
    ),
    "structures through a pointer, by a recursion": (
        "struct P { float a[6]; };\n__device__ void f(P* p, int n) { if (n == 0) { *p = {}; return; } f(p, n - 1); p->a[n % 6] += n; }",
        "P p; f(&p, n); x[i] = p.a[n % 6]",
    ),
    "builtins of g++": (
        "",
        "if (__builtin_expect(n > 3, 0)) x[i] += __builtin_popcount(n) + __builtin_inff()",
    ),
    "second results": (
        "",
        "int e; x[i] = frexpf(x[i], &e) + e; sincosf(x[i], x + i, x + 2 * i); double w; x[i] += modf(x[i], &w)",
    ),
    "memory of the heap": (
        "",
        "float* a = new float[n]; int* b = (int*)malloc(64); a[n / 2] = x[i]; b[n & 15] = n; x[i] = a[n / 2] + b[n & 15]; delete[] a; free(b)",
    ),
    "a destructor": (
        "struct D { float* p; __device__ ~D() { *p += 1; } };\n"
        "__device__ float f(float* p, int n) { D d = {p}; return n < 1 ? *p : f(p, n - 1) + *p; }",
        "x[i] = f(x + i, n)",
    ),
    "switch": (
        "",
        "switch (n) { case 1: x[i] = 4; break; case 2: x[i] += 9; break; case 3: x[i] *= x[0]; break; "
        "case 4: x[i] = 7; break; case 5: x[i] /= 3; break; default: x[i] = 0; }",
    ),
    "a table of functions": (
        "__device__ float up(float a) { return a + 1; }\n__device__ float down(float a) { return a - 1; }\n"
        "using F = float (*)(float);\n__device__ constexpr F table[] = {up, down};",
        "x[i] = table[n & 1](x[i])",
    ),
    "virtual functions": (
        "struct A { __device__ virtual float f(float a) const { return a; } };\n"
        "struct B : A { __device__ float f(float a) const override { return 2 * a; } };\n"
        + ALONE
        + " __device__ float g(float a) { B b; const A& p = b; return p.f(a); }",
        "x[i] = g(x[i])",
    ),
    "recursion": (ALONE + " __device__ float f(int a) { return a < 2 ? 1 : a * f(a - 1); }", "x[i] = f(n)"),
    "lambda": ("", "auto f = [&](int at) { return x[at] * 2; }; x[i] = f(i)"),
    "local array": ("", "float a[9]; for (int j = 0; j < 9; j++) a[j] = x[i + j]; x[i] = a[n % 9]"),
    "local array, aligned": (
        "",
        "alignas(64) float a[16]; for (int j = 0; j < 16; j++) a[j] = x[i + j]; x[i] = a[n % 16]",
    ),
    "large copy": ("", "__builtin_memcpy(x + 16 * i, x, 64)"),
    "large set": ("", "__builtin_memset(x + 16 * i, 0, 64)"),
    "copies": ("\n#include <cstring>\n", "memcpy(x + 16 * i, x, 64)"),
    "vectors": ("", "float4 v = ((float4*)x)[i]; v.x += v.w; ((float4*)x)[i] = v"),
    "doubles": ("", "((double*)x)[i] = sin(((double*)x)[i])"),
    "halves": ("#include <cuda_fp16.h>", "((half*)x)[i] = __float2half(x[i])"),
    "atomics": ("", "atomicAdd(x, 1.0f), atomicCAS((int*)x + 1, 0, 1), atomicMax((int*)x + 2, n)"),
    "shuffles": (
        "",
        "x[i] += __shfl_xor_sync(~0u, x[i], 1) + __reduce_add_sync(~0u, i) + __ballot_sync(~0u, n)",
    ),
    "shared": (
        "",
        "__shared__ float s[2][33]; s[i & 1][threadIdx.x & 31] = x[i]; __syncthreads(); x[i] = s[1][n & 31]",
    ),
    "volatile": ("", "((volatile float*)x)[i] = ((volatile float*)x)[0]"),
    "bit fields": ("struct B { unsigned a : 5, b : 27; };", "((B*)x)[i].b = ((B*)x)[0].a"),
    "constants": (
        "__constant__ float w[64];\nstatic const float t[4] = {1, 2, 3, 4};",
        "x[i] = w[i] * t[n & 3]",
    ),
    "clocks": ("", "x[i] = clock64() + clock()"),
    "printing words": ("", 'printf("the asm of section %d, no_sanitize emulator\\n", n)'),
    "own names": (
        "__device__ float section(float a) { return a; }\n__device__ float multiply(float a) { return a; }",
        "x[i] = section(multiply(x[i]))",
    ),
    "templates": (
        "template <int N> __device__ float f(const float* p) { float a = 0; for (int j = 0; j < N; j++) a += p[j]; return a; }",
        "x[i] = f<7>(x) + f<31>(x)",
    ),
    "goto": ("", "int j = 0; again: x[i] += j; if (++j < n) goto again"),
    "long long indices": ("", "x[(long long)n * n * i] = x[(size_t)i * n]"),
    "unsigned division": ("", "x[(unsigned)i / 3u * 3u] = x[(unsigned)i % 7u]"),
    "whole tiles": ("struct T { float a[64]; };", "((T*)x)[i] = ((T*)x)[0]"),
    "division by words": ("", "x[i / (int)blockDim.x] = x[n % (int)gridDim.x]"),
    "tiles of tensor cores": (
        "#include <mma.h>\nusing namespace nvcuda;",
        "wmma::fragment<wmma::accumulator, 16, 16, 16, float> c; wmma::fill_fragment(c, 0.0f); "
        "wmma::store_matrix_sync(x, c, 16, wmma::mem_row_major)",
    ),
    "local arrays in loops": (
        "",
        "for (int j = 0; j < n; j++) { float a[64]; for (int k = 0; k < 64; k++) a[k] = x[64 * j + k]; "
        "for (int k = 0; k < n; k++) x[k] += a[k % 64]; }",
    ),
    "flags on the stack": (
        "",
        "bool f[9]; for (int j = 0; j < 9; j++) f[j] = x[j] > n; int k = 0; for (bool g : f) k += g; x[i] = k",
    ),
    "many arguments and a lambda": (
        ALONE + " __device__ float f(float* x, int a, int b, int c, int d, int e, int g, int h, int k) {\n"
        "  alignas(64) float sums[16] = {};\n"
        "  auto add = [&](int from) { for (int j = from; j < g; j += h) sums[j & 15] += x[j] * k; };\n"
        "  add(a), __syncthreads(), add(b + c), __syncthreads(), add(d - e);\n"
        "  return sums[k & 15] + (g > h);\n}",
        "x[i] = f(x, n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7)",
    ),
    "a default that cannot be": (
        "",
        "switch (n & 3) { case 0: x[i] = 1; break; case 1: x[i] = 5; break; case 2: x[i] = 7; break; "
        "case 3: x[i] *= 2; break; default: __builtin_unreachable(); }",
    ),
    "unions": ("union U { float f; unsigned u; };", "U a; a.f = x[i]; a.u ^= 0x80000000u; x[i] = a.f"),
    "single numbers of vectors": (
        "",
        "float a = x[i], b = a; for (int j = 0; j < n; j++) b = b * a + x[j]; x[i] = b",
    ),
    "a trap": ("", "if (n > 99) __trap(); x[i] += n"),
    "templates of lambdas": (
        "template <class F> __device__ void each(int n, F f) { for (int j = 0; j < n; j++) f(j); }",
        "each(n, [&](int j) { each(3, [&](int k) { x[j] += x[k]; }); })",
    ),
    "constant structures": (
        "struct P { int at; float by; };\n__device__ constexpr P steps[] = {{1, 2.0f}, {3, 0.5f}, {4, 1.5f}};",
        "for (const P& p : steps) x[i + p.at] *= p.by",
    ),
    "early return": ("", "if (x[i] < 0) return; x[i] = sqrtf(x[i]); if (n == 3) return; x[i] += 1"),
    "fixed unrolled": ("", '_Pragma("unroll") for (int j = 0; j < 8; j++) x[8 * i + j] += x[j] * j'),
    "a sort that calls itself": (
        "__attribute__((noipa)) __device__ void sort(float* a, int from, int to) {\n  if (to - from < 2) return;\n  float pivot = a[from]; int at = from;\n  for (int j = from + 1; j < to; j++) if (a[j] < pivot) { float t = a[++at]; a[at] = a[j]; a[j] = t; }\n  a[from] = a[at]; a[at] = pivot;\n  sort(a, from, at); sort(a, at + 1, to);\n}",
        "float a[16]; for (int j = 0; j < 16; j++) a[j] = x[i + j]; sort(a, 0, 16); x[i] = a[n & 15]",
    ),
    "printing and asserting": (
        "#include <assert.h>",
        'assert(n < 100); assert(x != nullptr && "no array"); printf("%d %s %f %lld\\n", i, "of", x[i], 1LL * n * n); x[i] += 1',
    ),
    "a union in an array": (
        "union U { float f[2]; unsigned u[2]; double d; struct { short a, b; } s; };",
        "U a[4]; for (int j = 0; j < 4; j++) a[j].d = x[j]; a[n & 3].u[n & 1] ^= 1u; x[i] = a[(n + 1) & 3].s.a + a[n & 3].f[1]",
    ),
    "functions in structures": (
        'struct Op { const char* name; float (*f)(float, float); };\n__device__ float add(float a, float b) { return a + b; }\n__device__ float mul(float a, float b) { return a * b; }\n__device__ const Op ops[] = {{"add", add}, {"mul", mul}};',
        "for (const Op& op : ops) x[i] = op.f(x[i], op.name[0])",
    ),
    "Duff's device": (
        "",
        "int j = 0; switch (n & 3) { case 0: do { x[j++] += 1; case 3: x[j++] += 2; case 2: x[j++] += 3; case 1: x[j++] += 4; } while (j < n); }",
    ),
    "a matrix that is returned": (
        "struct M { float a[4][4]; };\n__attribute__((noipa)) __device__ M power(M m, int n) { M r = m; for (int t = 1; t < n; t++) { M s = {}; for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) for (int k = 0; k < 4; k++) s.a[i][j] += r.a[i][k] * m.a[k][j]; r = s; } return r; }",
        "M m; for (int j = 0; j < 16; j++) m.a[j / 4][j % 4] = x[j]; x[i] = power(m, n).a[n & 3][n & 1]",
    ),
    "a class with constructors": (
        "class V { float a_, b_; public: __device__ V(float a, float b) : a_(a), b_(b) {} __device__ V(const V& v) : a_(v.a_), b_(v.b_) {} __device__ ~V() { a_ = 0; } __device__ V& operator+=(const V& v) { a_ += v.a_; b_ += v.b_; return *this; } __device__ float dot(V v) const { return a_ * v.a_ + b_ * v.b_; } };",
        "V s(0, 0); for (int j = 0; j < n; j++) s += V(x[j], x[j + 1]); x[i] = s.dot(s)",
    ),
    "memory of a thread's own": (
        "",
        "float* a = new float[8]; for (int j = 0; j < 8; j++) a[j] = x[j]; x[i] = a[n & 7]; delete[] a; int* b = (int*)malloc(16); b[0] = n; x[i] += b[0]; free(b)",
    ),
    "an own stack": (
        "",
        "int stack[32], top = 0; stack[top++] = n; int count = 0; while (top) { int k = stack[--top]; count++; if (k > 1 && top < 30) { stack[top++] = k / 2; stack[top++] = k - k / 2; } } x[i] = count",
    ),
    "shared structures": (
        "struct S { float a[33]; int k; };",
        "__shared__ S s[2]; s[i & 1].a[threadIdx.x & 31] = x[i]; s[i & 1].k = n; __syncthreads(); S t = s[n & 1]; x[i] = t.a[n & 31] + t.k",
    ),
    "a maximum by compare and swap": (
        "",
        "int* at = (int*)x; int old = *at, seen; do { seen = old; old = atomicCAS(at, seen, __float_as_int(fmaxf(x[i + 1], __int_as_float(seen)))); } while (old != seen)",
    ),
    "pairs of halves": (
        "#include <cuda_fp16.h>\n#include <cuda_bf16.h>",
        "__half2 h = __floats2half2_rn(x[i], x[i + 1]); h = __hadd2(h, __hmul2(h, h)); x[i] = __low2float(h) + __bfloat162float(__float2bfloat16(x[i]))",
    ),
    "copies of structures": (
        "struct P { float v[12]; int k; };",
        "P a = *(P*)x, b; b = a; b.v[n % 12] = 3; b.k = n; P* q = n & 1 ? &a : &b; q->v[0] += 1; *(P*)(x + 16) = *q",
    ),
    "optional pointers": (
        "__attribute__((noipa)) __device__ bool find(const float* x, int n, float v, int* at) { for (int j = 0; j < n; j++) if (x[j] == v) { if (at) *at = j; return true; } return false; }",
        "int at = -1; if (find(x, n, 3, &at)) x[i] = at; if (find(x, n, 4, nullptr)) x[i] += 1",
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", HONEST)
def test_nobody_honest_is_refused(name: str, tmp_path: Path) -> None:
    judged(*HONEST[name], tmp_path)


OURS = ("softmax/v1_warp", "m3/stack_2", "gemm/v8_final", "layers/custom", "attention/v9_final")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", dict.fromkeys([*OURS, *CHECKABLE[::8]]))
def test_no_kernel_of_ours_is_refused(name: str) -> None:
    device = CheckedEmulator()
    planned = find(name).planned(small_problem(name), device.max_shared_bytes)
    try:
        kernels = [(planned.source, planned.defines)]
        # Kernels of variants that it calls
        kernels += [(code.source, dict(code.defines)) for code in planned.codes]
        for source, defines in kernels:
            imports.check_library(device.compile(source, defines).path, True)
    finally:
        device.close()
