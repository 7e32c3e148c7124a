"""The functions that a kernel file may call when it is graded on the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from mini_dnn.device.emulator.build import build_kernels
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.emulator.runtime_build import build_runtime
from mini_dnn.errors import CompileError
from mini_dnn.grading.confined import imports

KERNELS = [
    Path(__file__).parent / "kernels" / f"{name}.cu" for name in ("barriers", "halves", "memory", "warps")
]


def library(source: Path) -> Path:
    compiler = find_compiler()
    return build_kernels(source, {}, compiler, build_runtime(compiler, ucontext=False))


@pytest.mark.parametrize("source", KERNELS, ids=lambda path: path.name)
def test_all_that_kernels_use(source: Path) -> None:
    imports.check_library(library(source))


@pytest.mark.parametrize(
    "call",
    [
        *("expf(x[0])", "powf(x[0], 2)", "sin((double)x[0])", "tanhf(x[0])", "fmodf(x[0], 2)", "rintf(x[0])"),
        *("clock64() > 0", "clock() > 0"),
    ],
)
def test_mathematics(call: str, tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text(f'extern "C" __global__ void k(float* x) {{ x[1] = {call}; }}')
    imports.check_library(library(source))


@pytest.mark.parametrize(
    ("declared", "call"),
    [
        ("#include <cstdio>", 'fopen("/etc/passwd", "r") != nullptr'),
        ('extern "C" long syscall(long, ...);', "syscall(57)"),
        ('extern "C" long hidden(long) __asm__("getppid");', "hidden(1)"),
        ("#include <dlfcn.h>", 'dlsym(nullptr, "fork") != nullptr'),
        ("#include <ctime>", "time(nullptr)"),
    ],
)
def test_what_no_kernel_can(declared: str, call: str, tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text(f'{declared}\nextern "C" __global__ void k(float* x) {{ x[1] = {call}; }}')
    with pytest.raises(CompileError, match="which kernels cannot use"):
        imports.check_library(library(source))


@pytest.mark.parametrize(
    "text",
    [
        '__attribute__((no_sanitize("thread"))) void f() {}',
        '#define A __attribute__((no_sani##tize))\nvoid f() { asm(""); }',
        "#define JOIN(a, b) a##b\n__attribute__((JOIN(no_, sanitize_thread))) void f() {}",
        '#line 1 "/usr/include/math.h"\nvoid f() { asm(""); }',
        '#include <math.h>\n# 1 "/usr/include/math.h" 3\nvoid f() { asm(""); }',
        '%:/* */li\\ \nne 1 "x"\nvoid f() { asm(""); }',
        '#define fp16 fp16; void f() { asm(""); } using namespace emulator::fp16\n#include <cuda_fp16.h>',
        'extern "C" __global__ void k() {}\n#define flatten used)) void f() { asm(""); } __attribute__((used',
        '#include <mini_dnn/ptx.cuh>\nvoid f() { asm(""); }',
        '#if __INCLUDE_LEVEL__ > 0\nvoid f() { asm(""); }\n#endif',
        '__attribute__((__CONCAT(no_,sanitize)("thread"))) void f() {}',
        'const char* s = R"(\f# 1 "/usr/include/math.h"\f)";\nvoid f() { asm(""); }',
        'const char* s = R"(\n# 1 "/usr/include/math.h"\n)";\nvoid f() { asm(""); }',
        '__attribute__((section(".text"))) const char code[] = {1};',
        "void f(float* x) { __builtin_ia32_movntps(x, __builtin_ia32_movntps_value); }",
        "#include <immintrin.h>\nfloat f(float* x) { return _mm_cvtss_f32(_mm_load_ss(x)); }",
    ],
)
def test_what_would_hide_from_checked_mode(text: str, tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text(f"{text}\n")
    with pytest.raises(CompileError, match="would hide code from checked mode"):
        imports.check_source(source, {}, find_compiler())


@pytest.mark.parametrize("include", ["#include UNSEEN", "#include <emulator.h>"])
def test_a_header_that_hides(include: str, tmp_path: Path) -> None:
    """A header that a macro names is searched, too.

    A header with the name of one of the emulator's is not read.
    """
    (tmp_path / "emulator.h").write_text('#pragma GCC system_header\nvoid f() { asm(""); }\n')
    source = tmp_path / "kernel.cu"
    source.write_text(f'#define UNSEEN "emulator.h"\n{include}\n')
    if "UNSEEN" in include:
        with pytest.raises(CompileError, match="would hide code from checked mode"):
            imports.check_source(source, {}, find_compiler())
    else:
        imports.check_source(source, {}, find_compiler())


def test_a_kernel_does_not_know_that_it_is_checked(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    macros = "defined(EMULATOR_CHECKED) || defined(__SANITIZE_THREAD__)"
    source.write_text(f'#if {macros}\n#error "it knows"\n#endif\n')
    imports.check_source(source, {}, find_compiler())
    source.write_text(
        'extern "C" void __tsan_read4(void*) __attribute__((weak));\n'
        'extern "C" __global__ void k(float* x) { x[0] = &__tsan_read4 ? 0 : 1; }\n'
    )
    with pytest.raises(CompileError, match="uses __tsan_read4, which kernels cannot use"):
        imports.check_library(library(source))


def test_what_hides_nothing(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    lines = ["#include <cuda_fp16.h>", "#ifndef MINI_DNN_EMULATOR", 'asm("");', "#endif", "#pragma unroll 4"]
    source.write_text("\n".join([*lines, "/*\n # 1 load\n#line\n*/__device__ int line = 1;", ""]))
    imports.check_source(source, {}, find_compiler())
