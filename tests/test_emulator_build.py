"""Compiling: errors with the user's file and line, defines, local includes, the cache."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import Kernels

from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.device.emulator.compiler import Compiler, find_compiler
from mini_dnn.device.emulator.runtime_build import header_folder
from mini_dnn.device.emulator.scan import scan
from mini_dnn.errors import CompileError, DeviceError

INT = np.int32
SCALE = """\
#include "factor.cuh"
extern "C" __global__ void scale(float* x) { x[threadIdx.x] = times(x[threadIdx.x]); }
"""
FACTOR = """\
inline __device__ float times(float x) {
  __shared__ float t[TILE];
  t[TILE - 1] = x;
  return t[TILE - 1] * TILE;
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "factor.cuh").write_text(FACTOR)
    (tmp_path / "kernel.cu").write_text(SCALE)
    return tmp_path


def scaled(kernels: Kernels) -> float:
    x = np.ones(1, np.float32)
    kernels("scale", (1,), (1,), x)
    return float(x[0])


def test_two_modules_with_functions_of_one_name(emulator: EmulatorDevice, folder: Path) -> None:
    """Inline functions with the same name but different tiles must not replace each other."""
    source = folder / "kernel.cu"
    small, large = Kernels(emulator, source, TILE=2), Kernels(emulator, source, TILE=5000)
    assert [scaled(small), scaled(large), scaled(small)] == [2, 5000, 2]


def test_defines_do_not_reach_into_the_emulators_headers(emulator: EmulatorDevice, folder: Path) -> None:
    letters = dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrsuvwyz", 7)
    source = folder / "letters.cu"
    source.write_text(
        "#include <mma.h>\n#include <cuda_fp16.h>\n#include <cuda_runtime.h>\n#define TT 3\n"
        'extern "C" __global__ void letters(float* out) { *out = N + TT; nvcuda::wmma::fragment<'
        "nvcuda::wmma::accumulator, 16, 16, 16, half> sum; nvcuda::wmma::fill_fragment(sum, half(0)); }\n"
    )
    out = np.zeros(1, np.float32)
    Kernels(emulator, source, **letters)("letters", (1,), (32,), out)
    assert out[0] == 10


def test_a_bad_define_is_refused(emulator: EmulatorDevice, folder: Path) -> None:
    with pytest.raises(CompileError, match="'TILE SIZE' cannot be defined"):
        emulator.compile(folder / "kernel.cu", {"TILE SIZE": 3})


def test_missing_file(emulator: EmulatorDevice, folder: Path) -> None:
    with pytest.raises(CompileError, match=r"there is no kernel file .*nothing\.cu"):
        emulator.compile(folder / "nothing.cu", {})


def test_errors_name_the_users_file_and_line(
    emulator: EmulatorDevice, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "broken.cu").write_text(
        "// a comment\n#define SIDE 4\n\n"
        'extern "C" __global__ void k(float* x) {\n  extern __shared__ float t[];\n'
        "  x[0] = y[SIDE] + t[0];\n}\n"
    )
    monkeypatch.chdir(folder)
    with pytest.raises(CompileError) as error:
        emulator.compile(Path("broken.cu"), {})
    message = str(error.value)
    assert re.match(r"broken\.cu does not compile for the emulator \((g|clang)\+\+ ", message)
    assert "\nbroken.cu:6:10: error: " in message
    assert "x[0] = y[SIDE] + t[0];" in message  # the line itself
    assert "wrapper" not in message
    assert str(folder) not in message


def test_errors_in_an_included_file(emulator: EmulatorDevice, folder: Path) -> None:
    (folder / "factor.cuh").write_text(
        "\n\ninline __device__ float times(float x) { return z + __fns(1, 0, 1); }\n"
    )
    with pytest.raises(CompileError) as error:
        emulator.compile(folder / "kernel.cu", {})
    assert "factor.cuh:3:" in str(error.value)
    assert "If nvcc accepts __fns" in str(error.value)
    assert "wrapper" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            'extern "C" __global__ void k(int* x) { asm volatile("mov.u32 %0, %%laneid;" : "=r"(*x)); }',
            "MINI_DNN_EMULATOR",
        ),
        ("#include <cub/cub.cuh>", "The emulator has no <cub/cub.cuh>.* set needs_gpu in variant.py"),
        ("int main() { return cudaDeviceSynchronize(); }", "cudaDeviceSynchronize is host code"),
        ("__global__ void k(int* x); void f(int* x) { k<<<1, 32>>>(x); }", "<<< is host code"),
        (
            "namespace cg = cooperative_groups; using nvcuda::wmma::fragment; half2 a; __nv_bfloat16 b;"
            "float f() { __pipeline_commit(); return ptx::f() + CUDART_INF_F + __float2half(0); }",
            "half2 needs #include <cuda_fp16.h>.\n__nv_bfloat16 needs #include <cuda_bf16.h>.\nnvcuda needs "
            "#include <mma.h>.\ncooperative_groups needs #include <cooperative_groups.h>.\n__pipeline_commit "
            "needs #include <cuda_pipeline.h>.\nCUDART_INF_F needs #include <math_constants.h>.\nptx needs "
            "#include <mini_dnn/ptx.cuh>.$",
        ),
    ],
)
def test_what_only_nvcc_compiles_gets_a_hint(
    text: str, hint: str, emulator: EmulatorDevice, folder: Path
) -> None:
    (folder / "kernel.cu").write_text(f"{text}\n")
    with pytest.raises(CompileError, match=hint):
        emulator.compile(folder / "kernel.cu", {})


def test_local_memory_that_fits_no_stack_is_refused(emulator: EmulatorDevice, folder: Path) -> None:
    (folder / "large.cu").write_text(
        'extern "C" __global__ void k(float* x, int i) {\n  float all[20000];\n'
        "  for (int j = 0; j < 20000; j++) all[j] = x[j] * i;\n  x[0] = all[i];\n}\n"
    )
    with pytest.raises(CompileError, match=r"large\.cu.*frame"):
        emulator.compile(folder / "large.cu", {})


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands of the compiler, in their order."""
    commands: list[str] = []
    run = Compiler.run

    def counted(self: Compiler, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        commands.append(" ".join(arguments))
        return run(self, arguments)

    monkeypatch.setattr(Compiler, "run", counted)
    return commands


def test_the_cache(
    folder: Path,
    tmp_path: Path,
    compiled: list[str],
    monkeypatch: pytest.MonkeyPatch,
    emulator: EmulatorDevice,
) -> None:
    monkeypatch.setenv("MINI_DNN_CACHE", str(tmp_path / "cache"))
    source = folder / "kernel.cu"
    assert scaled(Kernels(emulator, source, TILE=2)) == 2
    first = len(compiled)
    assert first > 0
    assert scaled(Kernels(emulator, source, TILE=2)) == 2
    assert len(compiled) == first
    assert scaled(Kernels(emulator, source, TILE=3)) == 3  # another define
    assert len(compiled) == 2 * first
    (folder / "factor.cuh").write_text(FACTOR.replace("* TILE", "* 10"))
    assert scaled(Kernels(emulator, source, TILE=2)) == 10  # another included file
    assert len(compiled) == 3 * first
    libraries = list((tmp_path / "cache" / "emulator").iterdir())
    assert len(libraries) == 3  # no temporary file is left


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(DeviceError, match="no-such-compiler was not found; install it"):
        EmulatorDevice()


def test_a_compiler_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "g++"
    old.write_text("#!/bin/sh\necho 9.4.0\n")
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    with pytest.raises(DeviceError, match=r"needs g\+\+ 11 or newer, and .* says it is version 9.4.0"):
        EmulatorDevice()


def test_scan_skips_system_headers() -> None:
    text = '# 1 "k.cu"\n# 1 "/usr/x.h" 1 3\nextern "C" __global__ void hidden();\n# 2 "k.cu" 2\n'
    text += 'extern "C" __global__ void __attribute__((launch(1))) seen(int a) { if (a) { } }\n'
    text += "extern __shared__ float part[], rest[];\n__global__ void plain() {}\n"
    found = scan(text)
    assert (found.kernels, found.other_kernels) == (("seen",), ("plain",))
    assert found.dynamic_shared == ("part", "rest")


def test_more_static_shared_memory_than_cuda_has_is_refused(emulator: EmulatorDevice, folder: Path) -> None:
    text = (
        'extern "C" __global__ void k(float* x) {{\n  __shared__ float a[8192], b[{rest}];\n'
        "  a[threadIdx.x] = b[threadIdx.x] = *x;\n  __syncthreads();\n  *x = a[5] + b[6];\n}}\n"
    )
    source = folder / "shared.cu"
    source.write_text(text.format(rest=4096))
    emulator.compile(source, {})
    source.write_text(text.format(rest=4097))
    with pytest.raises(
        CompileError, match="kernel k has 49156 bytes of static shared memory; CUDA allows 49152"
    ):
        emulator.compile(source, {})


def test_another_copy_of_this_project_has_headers_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages, and the lines of findings, name headers by their paths."""

    def folders() -> tuple[Path, Path]:
        return header_folder(compiler, tmp_path / "r.so", False), header_folder(
            compiler, tmp_path / "r.so", True
        )

    compiler = find_compiler()
    plain, checked = folders()
    monkeypatch.setattr("mini_dnn.device.emulator.runtime_build.INCLUDE", tmp_path)
    assert folders()[0] != plain
    assert folders()[1] != checked


@pytest.mark.parametrize(
    "said",
    [
        "/x/kernel.cu:9:1: fatal error: error writing to /tmp/a.s: No space left on device",
        "/tmp/a.s: Fatal error: can't write 9 bytes to section .text of /tmp/a.o: 'No space left on device'",
        "/usr/bin/ld: final link failed: Disk quota exceeded",
        "g++: fatal error: Killed signal terminated program cc1plus",
        "Cannot create temporary file in /tmp/: No space left on device",
        "Fatal error: can't create /tmp/a.o: No space left on device",
        "/usr/bin/ld: cannot open output file a.so: No space left on device",
        "virtual memory exhausted: Cannot allocate memory",
        "cc1plus: out of memory allocating 65536 bytes after a total of 1048576 bytes",
        "fatal error: error in backend: IO failure on output stream: No space left on device",
        "error: unable to open output file 'a.o': 'No space left on device'",
        "clang: error: unable to make temporary file: No space left on device",
        "clang: error: unable to execute command: Killed",
        "LLVM ERROR: out of memory",
    ],
)
def test_a_full_disk_or_memory_is_not_the_kernels_fault(tmp_path: Path, said: str) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit 1\n')
    compiler.chmod(0o755)
    with pytest.raises(DeviceError, match=r"had too little room: .*; free some disk space or") as caught:
        Compiler(str(compiler), "g++ 12.2.0").run([])
    assert not isinstance(caught.value, CompileError)


@pytest.mark.parametrize("words", ["#error x: fatal error: ", "#error ", "error: ", "#error clang: error: "])
def test_a_kernels_own_words_about_the_disk_are_errors_of_the_kernel(tmp_path: Path, words: str) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text(f"{words}No space left on device\n")
    done = find_compiler().run(["-c", "-x", "c++", "-o", str(tmp_path / "kernel.o"), str(source)])
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
