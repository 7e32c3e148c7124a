"""Kernel files compiled for checked mode: no cheat is hidden, and no honest file is refused."""

# ruff: noqa: E501
from __future__ import annotations

import platform
from pathlib import Path

import pytest
from judged_kernels import ALONE, judged, launched
from sampling import chosen
from shipped import CHECKABLE, small_problem

from mini_dnn.device.emulator.checked import CheckedEmulator, KernelError
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.errors import CompileError
from mini_dnn.grading.confined import imports
from mini_dnn.variant import find

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or find_compiler().is_clang, reason="machine code of x86-64, by g++"
)

RETURNS = "struct P { float a[24]; };\n" + ALONE + " __device__ P f(float s) { return {{s, s, s, s, s, s}}; }"
CHEATS = {  # code before the kernel, and its effect
    "own hook": ('extern "C" void __tsan_read4(void*) {}', "x[i] += 1"),
    "own hook, static": (
        'extern "C" { __attribute__((noipa, used)) static void __tsan_write4(void*) {} }',
        "x[i] += 1",
    ),
    "own copy": ('extern "C" void* __wrap_memcpy(void* a, const void*, size_t) { return a; }', "x[i] += 1"),
    "own bounds": ('extern "C" void __ubsan_handle_out_of_bounds(void*, void*) {}', "x[i] += 1"),
    "dunder attribute": (
        "__attribute__((__no_sanitize_thread__)) float f(float* p) { return *p; }",
        "x[i] = f(x)",
    ),
    "C++ attribute": ("[[gnu::no_sanitize_thread]] float f(float* p) { return *p; }", "x[i] = f(x)"),
    "C++ attribute, using": (
        "[[using gnu: no_sanitize_thread]] float f(float* p) { return *p; }",
        "x[i] = f(x)",
    ),
    "split attribute": (
        '#define J(a, b) a##b\n__attribute__((J(no_sani, tize)("thread"))) float f(float* p) { return *p; }',
        "x[i] = f(x)",
    ),
    "coverage of none": (
        '__attribute__((no_sanitize("all"))) float f(float* p) { return *p; }',
        "x[i] = f(x)",
    ),
    "raw section": (
        '__attribute__((section(R"(.text.k)"))) __attribute__((no_sanitize("thread"))) void f(float* p) { *p = 1; }',
        "f(x + i)",
    ),
    "machine code as data": (
        '__attribute__((section(R"(.text)"))) extern const unsigned char code[] = {0xc7, 0x07, 0, 0, 0, 0, 0xc3};',
        "((void (*)(float*))code)(x + i)",
    ),
    "twin of a header": ("", "emulator::multiply(x, x, x, 8, 8, 8, emulator::Element::half, {})"),
    "twin by another name": ("namespace e = emulator;", "e::note_read(x, 4), x[i] += 1"),
    "twin by its mangled name": (
        'extern "C" void _ZN8emulator5yieldEv();',
        "_ZN8emulator5yieldEv(), x[i] += 1",
    ),
    "a barrier's middle": ("", "((void (*)())((char*)&emulator::yield + 16))()"),
    "a table of middles": (
        "void f(float* p) { *p += 1; }\nusing F = void (*)(float*);\n"
        "F const table[] = {(F)((char*)(void*)&f + 12), &f};",
        "table[i & 1](x + i)",
    ),
    "the compiler's mode": ("\n#undef __builtin_constant_p\n", "x[i] += __builtin_constant_p(n)"),
    "sizes that it knows": ("\n#undef __builtin_object_size\n", "x[i] += __builtin_object_size(x, 0)"),
    "the compiler's flags": (
        "\n#ifdef __SANITIZE_THREAD__\n#define W 1\n#else\n#define W __has_include(<sys/nothing>)\n#endif\n"
        "__attribute__((no_sanitize_thread)) float f(float* p) { return *p; }",
        "x[i] = f(x) + W",
    ),
    "written words": ("", "const_cast<unsigned&>(threadIdx.x) = 0, x[0] += 1"),
    "an empty table's bytes": (
        "__attribute__((no_sanitize_thread)) float* f(float* p) { *p = 1; return p; }",
        "f(x + i)",
    ),
    "a gather": (
        "#include <immintrin.h>",
        "*(__m256*)(x + 8 * i) = _mm256_i32gather_ps(x, _mm256_set1_epi32(n), 4)",
    ),
    "a store past the cache": ("#include <emmintrin.h>", "_mm_stream_si32((int*)x + i, 1)"),
    "an alias of a hook": (
        'extern "C" void mine(void*) {}\nextern "C" void __tsan_read4(void*) __attribute__((alias("mine")));',
        "x[i] += 1",
    ),
    "a weak hook": ('extern "C" __attribute__((weak)) void __tsan_write4(void*) {}', "x[i] += 1"),
    "a hook by its label": (
        'extern "C" void mine(void*) asm("__tsan_read4");\nextern "C" void mine(void*) {}',
        "x[i] += 1",
    ),
    "before all kernels": (
        "__attribute__((constructor)) void early() { *(volatile int*)16 = 1; }",
        "x[i] += 1",
    ),
    "after all kernels": ("__attribute__((destructor)) void late() { *(volatile int*)16 = 1; }", "x[i] += 1"),
    "an object that is made early": (
        "struct A { int a; A() : a((int)clock()) {} };\nA object;",
        "x[i] = object.a",
    ),
    "a table of constructors": (
        "static void early() { *(volatile int*)16 = 1; }\n"
        '__attribute__((section(".init_array"), used)) void (*const p)() = early;',
        "x[i] += 1",
    ),
    "labels as numbers": (
        "",
        "void* l[] = {&&a, &&b}; goto *((char*)l[n & 1] + (n >> 8)); a: x[i] += 1; b: x[i] += 2",
    ),
    "a function without an end": (
        "__attribute__((naked)) void f(float*) { __builtin_unreachable(); }",
        "f(x + i)",
    ),
    "an end that is none": (
        f"{ALONE} void g(float*);\n[[noreturn]] {ALONE} void f(float* p) "
        f"{{ g(p); __builtin_unreachable(); }}\n{ALONE} void g(float* p) {{ *p = 1; }}",
        "f(x + i)",
    ),
    "branches that are kept": (
        f'__attribute__((indirect_branch("keep"))) {ALONE} void f(float* p, long n) {{ ((void (*)(float*))n)(p); }}',
        "f(x + i, n)",
    ),
    "returns by another way": (
        '__attribute__((function_return("thunk"), noipa)) void f(float* p) { *p = 1; }',
        "f(x + i)",
    ),
    "another convention": (
        "struct P { float a[24]; };\n__attribute__((ms_abi, noipa)) P f(float s) { return {{s, s, s}}; }",
        "((__attribute__((ms_abi)) void (*)(float*, float))f)(x + n, 1.0f)",
    ),
    "constants as a function": (
        "const unsigned char code[] = {0xc3, 0xc3, 0xc3, 0xc3};",
        "((void (*)(float*))(void*)code)(x)",
    ),
    "an own way of calls": (
        'extern "C" void __x86_indirect_thunk_rax() {}',
        "void (*volatile p)(float*) = (void (*)(float*))x; p(x)",
    ),
    "another name in parentheses": (
        '__attribute__((weakref(("__cxa_guard_release")))) static void f(long long*);',
        "f((long long*)(x + n)), x[i] += 1",
    ),
    "a destructor of a thread's object": (
        "struct A { float* p = nullptr; ~A() { *(volatile float*)16 = 1; } };\nthread_local A a;",
        "a.p = x; x[i] = *a.p",
    ),
    "an object of another class": (
        "struct A { virtual ~A() {} }; struct B : A { int k[9]; };",
        "A* a = (A*)x; B* b = dynamic_cast<B*>(a); b->k[n] = 1",
    ),
    "another return address": (
        f"{ALONE} void f(long n) {{ *((void**)__builtin_frame_address(0) + 1) = "
        "(char*)__builtin_return_address(0) + n; }",
        "f(n), x[i] += 1",
    ),
    "another stack": ("", "__builtin_eh_return(n, (void*)x)"),
    "a long jump": (
        "",
        "void* b[5]; if (!__builtin_setjmp(b)) { b[1] = (void*)x; __builtin_longjmp(b, 1); } x[i] += 1",
    ),
    "a call of arguments as they are": (
        "void g(float* p) { *p = 1; }",
        "__builtin_apply((void (*)(...))((char*)&g + 8), __builtin_apply_args(), 64)",
    ),
    "a function that is looked up": (
        'extern "C" void* dlsym(void*, const char*);',
        '((void (*)())dlsym(nullptr, "abort"))()',
    ),
    "pages that can be written": (
        'extern "C" int mprotect(void*, unsigned long, int);',
        "mprotect(x, 4096, 7)",
    ),
    "the table of the loader": (
        'extern "C" char _GLOBAL_OFFSET_TABLE_[];',
        "((void**)_GLOBAL_OFFSET_TABLE_)[3] = x",
    ),
    "the environment": ('extern "C" char** environ;', "x[i] = environ[0][0]"),
    "an array of variable length": (
        "",
        "float a[n]; for (int j = 0; j < n; j++) a[j] = x[j]; x[i] = a[n - 1]",
    ),
    "memory on the stack": ("", "float* a = (float*)__builtin_alloca(n * 4); a[0] = x[i]; x[i] = a[0]"),
    "frames that cannot be followed": (
        ALONE + ' __attribute__((optimize("omit-frame-pointer"))) float f(float* p) '
        "{ float a[4] = {*p}; return p[1] + a[(int)p[3] & 3]; }",
        "x[i] = f(x)",
    ),
    "a frame that is too large": (
        '\n#pragma GCC diagnostic ignored "-Wframe-larger-than="\n'
        + ALONE
        + " float f(int n) { volatile float a[400000]; a[n] = 1; return a[n + 1]; }",
        "x[i] = f(n)",
    ),
    "a returned structure, anywhere": (
        RETURNS,
        "((void (*)(float*, float))f)(x + n, 1.0f), x[i] += 1",
    ),
    "a returned structure, through a number": (RETURNS, "((void (*)(size_t, float))f)(n, 1.0f), x[i] += 1"),
    "a returned structure, too large for its place": (
        RETURNS + "\nstruct Q { float a[6]; };",
        "x[i] = ((Q (*)(float))f)(x[i]).a[n % 6]",
    ),
    "a returned structure, below its caller's frame": (
        RETURNS,
        "char b[64]; memset(b, n, 64); ((void (*)(char*, float))f)(b - 192, x[i]), x[i] = b[n & 63]",
    ),
    "a returned structure, by way of another function": (
        RETURNS + "\n" + ALONE + " __device__ P g(float s) { return f(s + 1); }",
        "((void (*)(float*, float))g)(x + n, 1.0f), x[i] += 1",
    ),
    "a returned structure, after a call": (
        "struct P { float a[6]; };\n"
        + ALONE
        + " __device__ float g(float s) { return s + 1; }\n"
        + ALONE
        + " __device__ P f(float s, float* x) { P p = {}; const float t = g(s); x[0] += t; p.a[3] = t; return p; }",
        "((void (*)(float*, float, float*))f)(x + n, 1.0f, x)",
    ),
    "a guard that is none": (
        'extern "C" void __cxa_guard_abort(long long*);',
        "__cxa_guard_abort((long long*)(x + n)), x[i] += 1",
    ),
    "a guard by another name": (
        '__attribute__((weakref("__cxa_guard_release"))) static void f(long long*);',
        "f((long long*)(x + n)), x[i] += 1",
    ),
    "an exception of one's own": (
        'extern "C" void _Unwind_Resume(void*);',
        "void* e[4] = {x, x, (char*)x + n, x}; _Unwind_Resume(e), x[i] += 1",
    ),
    "the end of the program": ('extern "C" void __cxa_finalize(void*);', "__cxa_finalize(x), x[i] += 1"),
    "a long result": (
        'extern "C" long double modfl(long double, long double*);',
        "x[i] = modfl(x[i], (long double*)(x + n))",
    ),
    "a twin by its argument": (
        "#include <mini_dnn/ptx.cuh>\ntemplate <class T> struct Box { __device__ operator int() const { return 8; } };",
        "Box<ptx::TensorMap> b; multiply(x + n, x, x, b, 8, 8, {}, {}), x[i] += 1",
    ),
    "a twin of arrays by its argument": (
        "#include <mini_dnn/ptx.cuh>\ntemplate <class T> struct Box {};\n"
        "template <class T> struct Any { template <class U> __device__ operator U() const { return {}; } };",
        "using A = float[8][8]; multiply(*(A*)(x + n), *(A*)x, *(A*)x, Any<ptx::TensorMap>{}), x[i] += 1",
    ),
    "a text": ("", 'x[i] += 1; __builtin_strcpy((char*)(x + n), "AAAAAAA")'),
    "a text by its plain name": (
        'extern "C" char* strcpy(char*, const char*);',
        'x[i] += 1; strcpy((char*)(x + n), "AAAAAAA")',
    ),
    "a copy that returns its end": ("", 'x[i] += 1; __builtin_mempcpy(x + n, "AAAAAAA", 8)'),
    "a copy of a known size": (
        'extern "C" void* __memcpy_chk(void*, const void*, size_t, size_t);',
        'x[i] += 1; __memcpy_chk(x + n, "AAAAAAA", 8, 8)',
    ),
    "zeros": ("", "x[i] += 1; __builtin_bzero(x + n, 8)"),
    "the real heap": ('extern "C" void __real_free(void*);', "__real_free(x + n)"),
    "assembly": ("", 'asm("incl (%0)" ::"r"(x + i))'),
    "assembly in capitals of macros": ("\n#define A __asm__\n", 'A volatile("incl (%0)" ::"r"(x + i))'),
}
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
    "recursion": (
        ALONE + " __device__ float f(int a) { return a < 2 ? 1 : a * f(a - 1); }",
        "x[i] = f(n)",
    ),
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


WILD = {  # writes beyond a thread's own arrays that the machine code does not forbid, and their messages
    "far from an array": (
        "",
        "float a[4] = {x[0]}; float* p = a; p[(long long)n * n << 30] = 1; x[i] = a[i & 3]",
    ),
    "by a structure": (
        "struct S { int k; float a[1]; };",
        "S s = {n}; s.a[0] = x[0]; s.a[(long)n << 18] = 2; x[i] = s.a[0]",
    ),
    "by a lambda": (
        "",
        "float a[4] = {}; auto f = [&](long j) { a[0] = x[0]; (&a[0])[j] = 1; }; f((long)n << 20); x[i] = a[n & 3]",
    ),
    "by a copy": ("", "char a[16]; memset(a, 1, (size_t)n << 28); x[i] = a[n & 15]"),
    "over a return address": (
        ALONE + " __device__ void f(long* p, long at, long to) { p[at] = to; }",
        "long own = 0; for (long j = 1; j < 64; j++) f(&own, j, (long)x); x[i] = own",
    ),
    "over a return address, by a recursion": (
        "__device__ void f(long* p, long at, int depth) { if (depth) { f(p, at, depth - 1); p[0]++; } else p[at] = 7; }",
        "long own = 0; for (long j = 1; j < 64; j++) f(&own, -j, n); x[i] = own",
    ),
    "over frames of the runtime": (
        ALONE + " __device__ void f(long* p, long at, long to) { p[at] = to; }",
        "long own = 0; f(&own, 48 + n, 0); x[i] = own",
    ),
    "by an argument list": (
        "#include <stdarg.h>\nstruct V { unsigned gp, fp; char *over, *save; };\nstruct B { double a[4]; };\n"
        + ALONE
        + " double f(float* x, ...) { va_list ap; va_start(ap, x); ((V*)ap)->over = (char*)(x + 6000); B b = va_arg(ap, B); va_end(ap); return b.a[2]; }",
        "x[i] = f(x, 1, 2.0)",
    ),
    "by clearing": ("#include <new>\nstruct P { float a[100]; };", "new (x + 4000) P{}; x[i] += 1"),
    "by a second result": ("", "frexpf(x[i], (int*)(x + 5000 + n))"),
    "by sine and cosine": ("", "sincosf(x[i], x + i, x - 8 * n)"),
    "by freeing": ("", "x[i] += 1; free(x + 4 * n)"),
    "by deleting": ("", "float* p = new float[4]; p[0] = x[i]; x[i] += p[0]; delete p; delete p"),
    "by printing": ("", 'printf("%-*.*s%hn", n, n, "text", (short*)x + 100)'),
}


@pytest.mark.parametrize(
    "name",
    chosen(CHEATS, lambda name: name in ("own hook", "a table of middles", "a returned structure, anywhere")),
)
def test_no_cheat_is_accepted(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        CompileError, match=r"FORBIDDEN|cannot use on a GPU|which no kernel has|does not compile"
    ):
        judged(*CHEATS[name], tmp_path)


@pytest.mark.parametrize(
    "name",
    chosen(
        HONEST, lambda name: name in ("structures by value", "virtual functions", "printing and asserting")
    ),
)
def test_nobody_honest_is_refused(name: str, tmp_path: Path) -> None:
    judged(*HONEST[name], tmp_path)


@pytest.mark.parametrize("name", chosen(WILD, lambda name: name == "by a structure"))
def test_what_is_written_beyond_is_found(name: str, tmp_path: Path) -> None:
    """The write is prevented, because the verdict of checked mode is in the same process."""
    judged(*WILD[name], tmp_path)
    with pytest.raises(KernelError, match=r"out-of-bounds|not its own|printf has no %n"):
        launched(tmp_path)


TRIED = ("softmax/v1_warp", "m3/stack_2", "gemm/v8_final")  # tested each time
LARGE = ("layers/custom", "attention/v9_final")


@pytest.mark.parametrize(
    "name", chosen(dict.fromkeys([*TRIED, *LARGE, *CHECKABLE[::8]]), lambda name: name in TRIED)
)
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
