"""Checked mode with what other processors and compilers have: the portable switch of stacks, clang++."""

import functools
import shutil
from pathlib import Path

import pytest
from test_check import expected, run_wrong

import mini_dnn.check
from mini_dnn.check import check
from mini_dnn.cli.check import describe
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.shapes import ConvShape
from mini_dnn.variant import find

NAMES = (
    "correct_wmma",
    "direct_wild_index",
    "gemm_early_return",
    "gemm_no_second_barrier",
    "wmma_in_branch",
)
TINY = ConvShape(1, 2, 6, 9, 5, 3, 2)


def assert_told(name: str, folder: Path) -> None:
    file = Path(__file__).with_name("wrong") / f"{name}.cu"
    report = run_wrong(file, folder)
    ((kind, line, _),) = expected(file)
    told = "\n".join(describe(report))
    if kind == "nothing":
        assert not report.findings, told
        return
    (finding,) = report.findings
    assert finding.kind == kind, told
    assert not line or (finding.place and finding.place.line == line), told


@pytest.fixture
def with_ucontext(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mini_dnn.check, "CheckedEmulator", functools.partial(CheckedEmulator, ucontext=True))


@pytest.fixture
def with_clang(monkeypatch: pytest.MonkeyPatch) -> None:
    path = shutil.which("clang++")
    if path is None:
        pytest.skip("clang++ was not found")
    monkeypatch.setenv("CXX", path)


@pytest.mark.usefixtures("with_ucontext")
class TestUcontext:
    @pytest.mark.parametrize("name", NAMES)
    def test_corpus(self, name: str, tmp_path: Path) -> None:
        assert_told(name, tmp_path)

    @pytest.mark.parametrize("name", ["m2", "m3"])
    def test_no_false_finding(self, name: str) -> None:
        report = check(find(name), [TINY])
        assert not report.findings, "\n".join(describe(report))


def test_ucontext_is_another_runtime() -> None:
    assert CheckedEmulator(ucontext=True)._runtime_path != CheckedEmulator()._runtime_path


@pytest.mark.usefixtures("with_clang")
@pytest.mark.parametrize("name", NAMES)
def test_clang(name: str, tmp_path: Path) -> None:
    assert_told(name, tmp_path)
