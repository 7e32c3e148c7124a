"""Kernel files compiled for checked mode: no cheat is hidden."""

# ruff: noqa: E501
from __future__ import annotations

from pathlib import Path

import pytest
from judged_kernels import ALONE, RETURNS, judged, needs_x86_64

from mini_dnn.errors import CompileError

pytestmark = needs_x86_64

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
    "a returned structure, anywhere": (RETURNS, "((void (*)(float*, float))f)(x + n, 1.0f), x[i] += 1"),
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


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_is_accepted(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        CompileError, match=r"FORBIDDEN|cannot use on a GPU|which no kernel has|does not compile"
    ):
        judged(*CHEATS[name], tmp_path)
