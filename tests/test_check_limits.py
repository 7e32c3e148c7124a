"""Code that g++ accepts and a CUDA compiler or a GPU rejects: found with nvcc and without."""

# ruff: noqa: E501
import re
from functools import partial
from pathlib import Path

import pytest
from limits_samples import GPU_CODE, HOST_CODE, kernel
from shipped import CHECKABLE

from mini_dnn.checking import limits
from mini_dnn.checking.check import check
from mini_dnn.checking.limits import Verdict, verdict
from mini_dnn.cli import main
from mini_dnn.cli.check import describe
from mini_dnn.device.emulator.checked_streams import StreamEmulator
from mini_dnn.device.finding import Finding
from mini_dnn.device.nvcc import Output, find_nvcc
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.variant import find, names

SHAPE = ConvShape(2, 1, 5, 9, 1, 3, 1)
# test_check.py has the others: `check` reports code of the host
NOT_CHECKED = [name for name in names() if find(name).plan is not None and name not in CHECKABLE]
PLAN = """\
from mini_dnn.variant import CopyToSymbol, Launch, Variant


def plan(s):
    return [
        {copy}
        Launch("conv", (1,), ({threads},), ("x", "y", s.N * s.P * s.Q)),
    ]


VARIANT = Variant("conv2d", "", plan)
"""
COPY = 'CopyToSymbol("taps", "w"),'
WITH_NVCC = [
    "without",
    pytest.param(
        "nvcc",
        marks=[pytest.mark.exhaustive, pytest.mark.skipif(find_nvcc() is None, reason="nvcc was not found")],
    ),
]


@pytest.fixture(scope="module")
def device() -> StreamEmulator:
    return StreamEmulator()


@pytest.fixture(params=WITH_NVCC)
def nvcc(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether nvcc is asked."""
    asked = request.param == "nvcc"
    if asked:
        monkeypatch.setattr(limits, "find_nvcc", find_nvcc)
    return asked


def said(device: StreamEmulator, file: Path, ask: bool, **defines: int) -> Verdict:
    return verdict(file, defines, 90, partial(device.words, file, defines), ask)


def told(folder: Path, ask: bool) -> Finding:
    (finding,) = check(find(folder), [SHAPE], ask_nvcc=ask).findings
    return finding


def write(folder: Path, text: str, copy: str = "", threads: int = 64) -> Path:
    (folder / "kernel.cu").write_text(text)
    (folder / "variant.py").write_text(PLAN.format(copy=copy, threads=threads))
    return folder


@pytest.mark.parametrize("name", HOST_CODE)
def test_code_of_the_host(name: str, nvcc: bool, device: StreamEmulator, tmp_path: Path) -> None:
    text = HOST_CODE[name]
    file = write(tmp_path, text) / "kernel.cu"
    (finding,) = said(device, file, nvcc).findings
    (line,) = [number for number, row in enumerate(text.splitlines(), 1) if "// expect" in row]
    assert finding.kind == "compile"
    assert finding.place
    assert (finding.place.file, finding.place.line) == ("kernel.cu", line)
    assert finding.cure


@pytest.mark.parametrize("name", GPU_CODE)
def test_code_of_the_gpu(name: str, nvcc: bool, device: StreamEmulator, tmp_path: Path) -> None:
    file = write(tmp_path, GPU_CODE[name]) / "kernel.cu"
    assert not said(device, file, nvcc).findings


def test_where_it_is_declared(device: StreamEmulator, tmp_path: Path) -> None:
    file = write(tmp_path, HOST_CODE["a helper"]) / "kernel.cu"
    (finding,) = said(device, file, False).findings
    assert finding.what == "conv calls twice, a function without __device__, which a GPU cannot call"
    assert finding.other is not None
    assert finding.other.place is not None
    assert finding.other.place.line == 1


@pytest.mark.parametrize("name", NOT_CHECKED)
def test_no_variant_has_code_of_the_host(name: str, device: StreamEmulator) -> None:
    variant = find(name)
    taken = next(p for p in (*variant.operation.check, *variant.operation.spare) if not variant.limit_for(p))
    planned = variant.planned(taken, 227 * 1024)
    assert not said(device, planned.source, False, **planned.defines).findings


def test_too_much_constant_memory(nvcc: bool, tmp_path: Path) -> None:
    text = "__constant__ float small[4];\n__constant__ float table[20000];\n"
    finding = told(write(tmp_path, text + kernel("y[0] = table[n] + small[n];")), nvcc)
    assert finding.kind == "launch"
    assert "80,016 bytes, of which table has 80,000; a GPU has 65,536" in finding.what
    assert finding.place
    assert finding.place.line == 2


def test_a_variable_that_is_too_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, "__constant__ float taps[2];\n" + kernel("y[0] = taps[0];"), COPY)
    out = tmp_path / "verdict.json"
    assert main(["check", "--impl", str(folder), "--shapes", SHAPE.text, "--json", str(out)]) == 1
    words = capsys.readouterr().out
    assert "launch: the copy of w, 12 bytes, does not fit in the variable taps, which has 8" in words
    assert 'variant.py:6 | CopyToSymbol("taps", "w"),' in words
    assert "kernel.cu:1 | __constant__ float taps[2];" in words
    assert '"kind": "launch"' in out.read_text()


def test_a_variable_that_is_not_there(tmp_path: Path) -> None:
    finding = told(write(tmp_path, kernel("y[0] = x[0];"), COPY), False)
    assert "there is no variable taps in kernel.cu" in finding.what
    assert finding.place
    assert finding.place.line == 6


@pytest.mark.parametrize(
    ("bounds", "threads"), [("TILE * 4u, 2", 96), pytest.param("64", 65, marks=pytest.mark.exhaustive)]
)
def test_more_threads_than_bounds(bounds: str, threads: int, tmp_path: Path) -> None:
    text = "#define TILE 16\n" + kernel("y[0] = x[0];")
    text = text.replace("__global__ void", f"__global__ void __launch_bounds__({bounds})")
    finding = told(write(tmp_path, text, threads=threads), False)
    assert finding.what.startswith(f"conv is declared __launch_bounds__(64), but is launched with {threads}")
    assert finding.place
    assert (finding.place.file, finding.place.line) == ("variant.py", 7)


SUMS = """\
float sums[96];
  #pragma unroll
  for (int i = 0; i < 96; i++) sums[i] = x[i];
  for (int k = 0; k < n; k++) {
    #pragma unroll
    for (int i = 0; i < 96; i++) sums[i] = sums[i] * x[k] + y[i];
  }
  #pragma unroll
  for (int i = 0; i < 96; i++) y[i] = sums[i] * sums[95 - i];"""


@pytest.mark.parametrize("threads", [512, 128])
def test_registers(threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of registers is nvcc's, whose output is given here."""
    folder = write(tmp_path, kernel(SUMS), threads=threads)
    words = (
        "ptxas info    : Compiling entry function 'conv' for 'sm_90a'\nptxas info    : Used 202 registers\n"
    )
    monkeypatch.setattr(limits, "find_nvcc", lambda: tmp_path / "nvcc")
    monkeypatch.setattr(limits, "compiled", lambda *asked: Output(b"cubin", words))
    (finding,) = check(find(folder), [SHAPE], schedules=["forward"]).findings
    needed = "conv uses 202 registers per thread, 106,496 for a block of 512 threads"
    assert finding.what.startswith(needed) == (threads == 512)


@pytest.mark.exhaustive
@pytest.mark.skipif(find_nvcc() is None, reason="nvcc was not found")
def test_registers_that_nvcc_counts(
    tmp_path: Path, device: StreamEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "find_nvcc", find_nvcc)
    file = write(tmp_path, kernel(SUMS)) / "kernel.cu"
    assert 96 < said(device, file, True).registers["conv"] <= 255


def test_static_shared_memory_from_100000_bytes_on(tmp_path: Path) -> None:
    """From this size on, readelf prints sizes in hexadecimal. A variable of that size is not a mistake."""
    text = kernel("__shared__ float tile[30000];\n  tile[n] = x[0]; y[0] = tile[n];")
    finding = told(write(tmp_path, text), False)
    assert "has 120000 bytes of static shared memory" in finding.what
    right = "__device__ float kept[50000];\n" + kernel(
        "for (int i = threadIdx.x; i < n; i += blockDim.x) kept[49999 - i] = x[i];"
    )
    found = check(find(write(tmp_path, right)), [SHAPE]).findings
    assert [finding.kind for finding in found] == ["unwritten"], found


def test_shared_arrays_of_what_a_kernel_calls(tmp_path: Path) -> None:
    text = "__shared__ float all[8000];\n__device__ float sum() {\n  __shared__ float own[8000];\n"
    text += (
        "  own[threadIdx.x] = all[threadIdx.x];\n  __syncthreads();\n  return own[63 - threadIdx.x];\n}\n"
        + kernel("all[threadIdx.x] = x[0]; y[0] = sum();")
    )
    assert "has 64000 bytes of static shared memory" in told(write(tmp_path, text), False).what


def test_nvcc_that_does_not_know_the_gpu_says_nothing(
    tmp_path: Path, device: StreamEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this case the check is done without nvcc."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho \"nvcc fatal   : Unsupported gpu architecture 'sm_90a'\" >&2\nexit 1\n")
    nvcc.chmod(0o755)
    monkeypatch.setattr(limits, "find_nvcc", lambda: nvcc)
    file = write(tmp_path, HOST_CODE["a helper"]) / "kernel.cu"
    (finding,) = said(device, file, True).findings
    assert finding.what.startswith("conv calls twice")


def test_nvcc_is_asked_once(tmp_path: Path, device: StreamEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc, file = tmp_path / "nvcc", write(tmp_path, HOST_CODE["a helper"]) / "kernel.cu"
    nvcc.write_text(
        f"#!/bin/sh\necho asked >> {tmp_path}/log\necho '{file}(2): error: a mistake of \"this\" kind'\nexit 2\n"
    )
    nvcc.chmod(0o755)
    monkeypatch.setattr(limits, "find_nvcc", lambda: nvcc)
    for _ in range(2):
        found = said(device, file, True).findings
        assert [f.what for f in found] == [
            'nvcc rejects it: a mistake of "this" kind',
            "conv calls twice, a function without __device__, which a GPU cannot call",
        ]
    assert (tmp_path / "log").read_text() == "asked\n"


def test_each_problem_has_the_finding(tmp_path: Path) -> None:
    folder = write(tmp_path, HOST_CODE["a number"])
    report = check(find(folder), [SHAPE, SHAPE.with_batch(3)], ask_nvcc=False)
    assert [result.finding.kind for result in report.results if result.finding] == ["compile"] * 2
    assert len(report.findings) == 1
    assert re.search(r"here +kernel.cu:3 \| .*size", "\n".join(describe(report)))


def test_bounds_of_each_problem(tmp_path: Path) -> None:
    """If macros depend on the problem, so do the bounds."""
    folder = write(tmp_path, kernel("y[0] = x[0];").replace("void", "void __launch_bounds__(TILE)"))
    plan = (folder / "variant.py").read_text().replace("(64,)", "(s.N * 32,)")
    (folder / "variant.py").write_text(plan.replace("plan)", "plan, defines=lambda s: {'TILE': s.N * 32})"))
    report = check(find(folder), [SHAPE, SHAPE.with_batch(1)], ask_nvcc=False, schedules=["forward"])
    assert not any(finding.kind == "launch" for finding in report.findings), report.findings
