"""Atomics and warp functions accept the types that nvcc accepts, and refuse the others with advice."""

import re
import subprocess
from pathlib import Path

import pytest

from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.device.nvcc import find_nvcc
from mini_dnn.errors import CompileError

HEADER = """\
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <stdint.h>
struct Pair { float x, y; };
struct Large { float all[9]; };
enum Mode { first, second };
using namespace nvcuda;
typedef wmma::fragment<wmma::matrix_a, 16, 16, 16, float, wmma::row_major> FLOATS;
"""
# An expression, and what the emulator's message advises
REFUSED = {
    "atomicAdd((long long*)x, 1)": "cast a pointer to a larger integer to unsigned long long",
    "atomicAdd((uint64_t*)x, 1)": "cast a pointer to a larger integer to unsigned long long",
    "atomicAdd((short*)x, 1)": "only for pointers to int, unsigned, unsigned long long, float, double",
    "atomicSub((float*)x, 1)": r"use atomicAdd\(\) of the negative value",
    "atomicMax((float*)x, 1)": r"write a loop with atomicCAS\(\)",
    "atomicMin((double*)x, 1)": r"write a loop with atomicCAS\(\)",
    "atomicExch((double*)x, 1)": "cast the pointer to one of them",
    "atomicCAS((float*)x, 1.0f, 2.0f)": "convert a float with __float_as_int",
    "atomicOr((unsigned long*)x, 1ul)": "only for pointers to int, unsigned, long long and unsigned long",
    "__shfl_sync(~0u, Pair(), 0)": r"shuffle each member of this value, or use shfl\(\)",
    "__shfl_down_sync(~0u, make_float2(1, 2), 1)": "numbers only",
    "__shfl_xor_sync(~0u, x, 1)": "numbers only",
    "__match_any_sync(~0u, __float2half(1.0f))": "match functions take numbers only: pass the bits of a half",
    "__reduce_add_sync(~0u, 1.5f)": "__reduce_add_sync.* is ambiguous",
    "__reduce_max_sync(~0u, 1ll)": "__reduce_max_sync.* is ambiguous",
    "FLOATS a": "wmma has operands of half and precision::tf32",
    "tile.shfl(Large(), 0)": "at most 32 bytes .*: shuffle the parts of this value",
    "tile.shfl_xor(__half2(), 1)": r"use __shfl_sync\(\) for a pair",
}
ACCEPTED = [
    "atomicAdd((unsigned long long*)x, 1)",
    "atomicAdd((__half2*)x, __half2())",
    "atomicAdd((__nv_bfloat16*)x, __float2bfloat16(1.0f))",
    "atomicAdd_block((double*)x, 1.0)",
    "atomicMax((long long*)x, 1ll)",
    "atomicXor((unsigned*)x, 1)",
    "atomicExch((float*)x, 1.0f)",
    "atomicCAS((unsigned short*)x, 1, 2)",
    "__shfl_sync(~0u, first, 0)",
    "__shfl_sync(~0u, 'a', 0)",
    "__shfl_up_sync(~0u, 1ull, 1)",
    "__shfl_xor_sync(~0u, __half2(), 1)",
    "__shfl_xor_sync(~0u, __nv_bfloat16(), 1)",
    "__match_any_sync(~0u, 1.5)",
    "__reduce_add_sync(~0u, true)",
    "__reduce_min_sync(~0u, -1)",
    "__reduce_or_sync(~0u, 1)",
    "tile.shfl_down(Pair(), 1)",
    "tile.shfl(make_float4(1, 2, 3, 4), 0)",
    "tile.shfl_xor(__half(), 1)",
]


def kernel(statement: str, name: str = "k") -> str:
    tile = "auto tile = cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());"
    return f'extern "C" __global__ void {name}(float* x) {{ {tile} {statement}; }}\n'


@pytest.mark.parametrize(("statement", "advice"), REFUSED.items(), ids=REFUSED)
def test_other_types_are_refused_with_advice(
    emulator: EmulatorDevice, tmp_path: Path, statement: str, advice: str
) -> None:
    (tmp_path / "kernel.cu").write_text(HEADER + kernel(statement))
    with pytest.raises(CompileError, match=advice):
        emulator.compile(tmp_path / "kernel.cu", {})


def test_the_types_of_cuda_are_accepted(emulator: EmulatorDevice, tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text(HEADER + kernel("; ".join(ACCEPTED)))
    emulator.compile(tmp_path / "kernel.cu", {})


@pytest.mark.exhaustive
@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")
def test_nvcc_refuses_the_same(tmp_path: Path) -> None:
    """A line for each statement; nvcc names the lines of those that it refuses."""
    statements = [*REFUSED, *ACCEPTED]
    text = HEADER + "".join(kernel(statement, f"k{at}") for at, statement in enumerate(statements))
    (tmp_path / "kernel.cu").write_text(text)
    command = [str(find_nvcc()), "-std=c++17", "-arch=sm_90", "-ptx", "kernel.cu", "-o", "kernel.ptx"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    start = HEADER.count("\n") + 1
    named = re.findall(r"kernel\.cu\((\d+)\): error|at line (\d+) of kernel\.cu", run.stderr)
    refused = {int(line or other) - start for line, other in named}
    assert [statements[at] for at in sorted(refused)] == list(REFUSED), run.stderr
