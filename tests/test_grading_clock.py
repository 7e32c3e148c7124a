"""Grading with a clock: on a GPU, and on a stand-in that has one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from grading_helpers import QUICK, assemble, expected, names, quick_setting

from mini_dnn.device import Device
from mini_dnn.device.cuda import FLUSHES, CudaDevice
from mini_dnn.device.cuda_buffer import CudaBuffer
from mini_dnn.device.nvcc import find_nvcc
from mini_dnn.errors import DeviceError, UsageError
from mini_dnn.grading import rubric
from mini_dnn.grading.confined import forkserver
from mini_dnn.grading.confined.forkserver import ForkServer
from mini_dnn.grading.grader import Grader
from mini_dnn.grading.subject import DeviceInfo
from mini_dnn.grading.submission import Submission
from mini_dnn.paths import ROOT

STAND_IN = (
    "import sys; sys.path[:] = [*sys.argv[3:], sys.argv[3] + '/tests']; import grading_stand_in; "
    "grading_stand_in.install(); from mini_dnn.grading.confined import forkserver; "
    "forkserver.main(int(sys.argv[1]), sys.argv[2] == 'apart')"
)


ALONE = (pytest.mark.gpu, pytest.mark.gpu_alone)


@pytest.fixture(scope="module", params=["stand-in", pytest.param("cuda", marks=ALONE)])
def clock(request: pytest.FixtureRequest) -> Iterator[str]:
    """The source of the times."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if request.param == "cuda":
            request.getfixturevalue("cuda")
        elif find_nvcc() is None:
            pytest.skip("no nvcc: kernels are compiled for a GPU")
        else:
            monkeypatch.setattr(forkserver, "START", STAND_IN)
        yield str(request.param)


def grader_at(folder: Path, precision: str, performance: str) -> Grader:
    text = QUICK.replace("hidden = 3 }", "performance = 10 }")
    path = folder / "gpu.toml"
    path.write_text(f"{text.replace('fp16', precision)}\n[performance]\n{performance}\n")
    return Grader(quick_setting(folder, rubric=rubric.load(path), device="cuda"), folder)


@pytest.fixture(scope="module")
def exact(clock: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grader]:
    """A grader for few images, because some cheats store them in a variable."""
    folder = tmp_path_factory.mktemp("exact")
    performance = "batch = 20\nfull = 1000\nnone = 2000\nwarm_up = 1\nrepeats = 3"
    with grader_at(folder, "fp32", performance) as grader:
        yield grader


@pytest.mark.parametrize("name", names("timed"))
def test_cheats_with_the_clock(name: str, exact: Grader, tmp_path: Path) -> None:
    grade = exact.grade(Submission(name, assemble(name, tmp_path)))
    words = grade.refused or "\n".join(check.message for check in grade.checks)
    assert re.search(expected(name), words), words
    assert grade.points == 0


def test_an_honest_submission_is_timed(exact: Grader) -> None:
    grade = exact.grade(Submission("direct", ROOT / "milestones/m1/direct"))
    assert (grade.points, grade.refused) == (14, ""), grade.checks
    assert grade.op_ms is not None


@pytest.mark.parametrize("clock", ["stand-in"], indirect=True)
def test_a_reference_on_the_same_device(clock: str, tmp_path: Path) -> None:
    performance = 'batch = 2\nreference = "m2/unroll_gemm"\nfull = 0.25\nnone = 1.0\nwarm_up = 0\nrepeats = 1'
    with grader_at(tmp_path, "fp32", performance) as grader:
        grade = grader.grade(Submission("direct", ROOT / "milestones/m1/direct"))
    check = next(check for check in grade.checks if check.name.endswith("performance"))
    assert grade.op_ms == 2.0, "a launch is a millisecond, and there are two layers"
    assert "0.333 of m2/unroll_gemm's 6.000 ms" in check.message
    assert check.points == pytest.approx(10 * (1 - 1 / 3) / 0.75)
    assert "conv2: 1.0000 ms in 1 parts" in check.staff


@pytest.mark.parametrize("clock", ["stand-in"], indirect=True)
def test_a_gpu_whose_kernels_reach_the_clock(
    clock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaching = "grading_stand_in.ClockedEmulator.reaches_host = True; from mini_dnn"
    monkeypatch.setattr(forkserver, "START", forkserver.START.replace("from mini_dnn", reaching, 1))
    setting = quick_setting(tmp_path, device="cuda")
    with pytest.raises(DeviceError, match=r"uvm_disable_hmm=1.*--weak-isolation"):
        Grader(setting, tmp_path)
    Grader(replace(setting, weak_isolation=True), tmp_path).close()


def test_images_that_are_too_few_are_reported_before_a_device_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = QUICK.replace("hidden = 3 }", "hidden = 3, accuracy = 1 }") + "[accuracy]\nbatch = 100_000\n"
    opened: list[Path] = []
    monkeypatch.setattr("mini_dnn.grading.grader.ForkServer", lambda home, apart: opened.append(home))
    with pytest.raises(UsageError, match=r"accuracy\.batch is 100000; .* has only"):
        Grader(quick_setting(tmp_path, rubric=rubric.parse(text), data="synthetic"), tmp_path)
    assert not opened


def test_a_gpu_that_namespaces_hide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork server that cannot see the GPU is not kept."""
    asked: list[ForkServer] = []

    def look(server: ForkServer, device: str) -> DeviceInfo:
        asked.append(server)
        seen = len(asked) > 1
        return DeviceInfo("cuda" if seen else "emulator", "a device", 90, seen, 48 << 10, reaches_host=False)

    monkeypatch.setattr("mini_dnn.grading.grader.look", look)
    with Grader(quick_setting(tmp_path, device="auto"), tmp_path) as grader:
        first, second = asked
        assert [server._closed for server in asked] == [True, True]
        assert grader._server() not in (first, second)
        assert not grader._server()._apart
        assert grader.description == "a device"


@pytest.mark.gpu
@pytest.mark.gpu_alone
@pytest.mark.exhaustive
def test_a_score_repeats_within_a_hundredth(cuda: Device, tmp_path: Path) -> None:
    """The thresholds are so close that a hundredth of the time is a hundredth of the points."""

    def points(run: str, full: float, none: float) -> float:
        folder = tmp_path / run
        folder.mkdir()
        limits = f"full = {full}\nnone = {none}\nwarm_up = 2\nrepeats = 7"
        performance = f'batch = 2000\nreference = "m2/unroll_gemm"\n{limits}'
        with grader_at(folder, "fp16", performance) as grader:
            grade = grader.grade(Submission("custom", ROOT / "layers/custom"))
        assert not grade.refused, grade.refused
        return next(c.points for c in grade.checks if c.name.endswith("performance"))

    full, none = 0.001, 1.0
    part = none - (none - full) * points("first", full, none) / 10  # as a share of the reference's time
    assert full < part < none
    scores = [5.0, points("second", part / 2, part * 1.5), points("third", part / 2, part * 1.5)]
    assert max(scores) - min(scores) <= 0.01 * 10, scores


@pytest.mark.parametrize("arch", [75, 90])
def test_lines_that_a_kernel_asked_the_cache_to_keep_are_flushed_too(arch: int) -> None:
    """They are made ordinary before the first byte is overwritten.

    Older GPUs have neither such lines nor such a call.
    """
    calls: list[str] = []
    device = object.__new__(CudaDevice)
    device.arch, device._streams = arch, {0: None}
    device._flush = CudaBuffer("L2 flush", (8,), np.dtype("u1"), 4096, 8)
    results = SimpleNamespace(CUDA_SUCCESS=0)
    device._bindings = SimpleNamespace(
        CUresult=results, cuCtxResetPersistingL2Cache=lambda: calls.append("reset") or (0,)
    )
    device._cuda = SimpleNamespace(
        MemoryError=MemoryError, Error=ValueError, memset_d8_async=lambda *_: calls.append("overwrite")
    )
    device.flush_cache()
    assert calls[0] == ("reset" if arch == 90 else "overwrite")
    assert calls.count("overwrite") == FLUSHES
