"""Checked mode on other processors and compilers: the portable switch of stacks, and clang++."""

import contextlib
from pathlib import Path

import pytest
from check_plans import Plan
from wrong_kernels import expected, run_wrong, source_of

import mini_dnn.checking.check
from mini_dnn.checking.check import check
from mini_dnn.cli.check import describe
from mini_dnn.device.emulator.checked_streams import StreamEmulator
from mini_dnn.device.emulator.compiler import OLDEST, find_compiler
from mini_dnn.errors import DeviceError
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.variant import Variant, find
from mini_dnn.variant.plan import Launch

NAMES = (
    "correct_wmma",
    "direct_wild_index",
    "gemm_early_return",
    "gemm_no_second_barrier",
    "reduce_stride_to_zero",
    "wmma_in_branch",
)
SOME = ("correct_wmma", "gemm_early_return", "gemm_no_second_barrier")
# Code that clang++ compiles differently or leaves out.
CLANG_NAMES = (
    *NAMES,
    "correct_cleared_tiles",
    "direct_atomic_out_of_bounds",
    "direct_memcpy_of_all_channels",
    "direct_reads_output",
    "gemm_float4_store",
    "gemm_tile_into_its_neighbour",
    "split_lock_across_barrier",
)
TINY = ConvShape(1, 2, 6, 9, 5, 3, 2)


def assert_told(name: str, folder: Path) -> None:
    source = source_of(name)
    report = run_wrong(source, folder)
    ((kind, line, _),) = expected(source)
    told = "\n".join(describe(report))
    if kind == "nothing":
        assert not report.findings, told
        return
    (finding,) = report.findings
    assert finding.kind == kind, told
    assert not line or (finding.place and finding.place.line == line), told


@pytest.fixture
def with_clang(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("clang++", *(f"clang++-{version}" for version in range(OLDEST["clang++"], 24))):
        monkeypatch.setenv("CXX", name)
        with contextlib.suppress(DeviceError):
            find_compiler()
            return
    pytest.skip(f"no clang++ {OLDEST['clang++']} or newer was found")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("unoptimised_runtime")
def test_ucontext(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This is a single test, because it needs its own runtime."""
    devices = []

    def portable(limit: int) -> StreamEmulator:
        devices.append(StreamEmulator(limit, ucontext=True))
        return devices[-1]

    monkeypatch.setattr(mini_dnn.checking.check, "StreamEmulator", portable)
    for name in SOME:
        assert_told(name, tmp_path)
    report = check(find("m3"), [TINY])
    assert not report.findings, "\n".join(describe(report))
    assert len(devices) == len(SOME) + 1


@pytest.mark.usefixtures("with_clang")
@pytest.mark.parametrize("name", CLANG_NAMES)
def test_clang(name: str, tmp_path: Path) -> None:
    assert_told(name, tmp_path)


def blocks(count: int) -> Plan:
    return lambda s: [Launch("conv", (count,), (1,), ("x", "y"))]


@pytest.fixture(params=["g++", "clang++"])
def with_each(request: pytest.FixtureRequest) -> None:
    if request.param == "clang++":
        request.getfixturevalue("with_clang")


PAIRS = """#include <cuda_fp16.h>
union Both {
  float4 all;
  float one[4];
};
extern "C" __global__ void conv(const float* x, float* y) {
  Both both;
  both.all = make_float4(0.0f, 1.0f, 2.0f, 3.0f);
  const half2 pair = *reinterpret_cast<const half2*>(reinterpret_cast<const half*>(x) + SKIP);
  y[blockIdx.x] = both.one[1] + __low2float(pair);
}
"""


@pytest.mark.usefixtures("with_each")
@pytest.mark.parametrize("skip", [0, 1])
def test_vectors(skip: int, tmp_path: Path) -> None:
    """A pair of halves is read at a multiple of 4 bytes, and vectors can be members of a union."""
    (tmp_path / "kernel.cu").write_text(PAIRS)
    report = check(Variant("conv2d", "", blocks(8), defines={"SKIP": skip}, folder=tmp_path), [TINY])
    kinds = {finding.kind for finding in report.findings}
    assert ("misaligned" in kinds) == bool(skip), kinds


STATIC = """static __device__ float sums[8];
static __device__ float next[8];
extern "C" __global__ void conv(const float* x, float* y) {
  float* p = sums;
  p[blockIdx.x] = next[blockIdx.x % 8];
  y[blockIdx.x] = sums[(blockIdx.x + 1) % 8];
}
"""


@pytest.mark.usefixtures("with_each")
def test_static_variables_have_space_between(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text(STATIC)
    told = "\n".join(describe(check(Variant("conv2d", "", blocks(9), folder=tmp_path), [TINY])))
    assert "write of sums[8]: outside constant or device array sums" in told
