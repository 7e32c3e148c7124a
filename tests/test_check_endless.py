"""Blocks that do not end: found by a limit on their steps, or by a time limit if they make none."""

import _thread
import time
from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import Kernels

from mini_dnn import progress
from mini_dnn.checking.check import check
from mini_dnn.cli import main
from mini_dnn.device.emulator.checked import CheckedEmulator, KernelError
from mini_dnn.device.emulator.explain import explain_endless
from mini_dnn.device.finding import Party
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.variant import Variant, find
from mini_dnn.variant.plan import Launch
from mini_dnn.variant.scaffold import create

POLLS = """\
extern "C" __global__ void polls(int* out) {
  __shared__ int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x == blockDim.x - 1) atomicExch(&flag, 1);
  while (atomicAdd(&flag, 0) == 0) {
  }
  out[threadIdx.x] = 1;
}
"""
SUMS = """\
extern "C" __global__ void sums(int* out, int n) {
  for (int i = 0; i < n; i++) atomicAdd(out, 1);
}
"""
NEVER = """\
extern "C" __global__ void conv(const float* x, const float* w, float* y) {
  while (true) __syncthreads();
}
"""


def test_a_thread_that_polls_lets_the_others_run(tmp_path: Path) -> None:
    """A GPU guarantees progress to all threads of a block, so this kernel is correct."""
    (tmp_path / "k.cu").write_text(POLLS)
    out = np.zeros(64, np.int32)
    Kernels(CheckedEmulator(), tmp_path / "k.cu")("polls", (1,), (64,), out)
    assert out.all()


def test_the_limit_is_on_the_steps_of_a_block(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SUMS)
    kernels = Kernels(CheckedEmulator(limit=1000), tmp_path / "k.cu")
    out = np.zeros(1, np.int32)
    kernels("sums", (9,), (1,), out, np.int32(400))  # two steps each, because an atomic reads and writes
    assert out[0] == 9 * 400
    with pytest.raises(KernelError) as error:
        kernels("sums", (1,), (1,), out, np.int32(600))
    assert error.value.finding.kind == "endless"
    assert "1,000" in error.value.finding.what


def test_only_some_places_of_its_threads_are_listed() -> None:
    places = "\n".join(f"  threads {i}{' of block (1, 0, 0)' * (i % 2)} run at (k.cu:{i})" for i in range(20))
    finding = explain_endless("made 9 accesses", places, find("m1").source, "spins", Party(None, (0,), ()))
    assert finding.notes[:2] == ("thread 0 runs at (k.cu:0)", "thread 1 of block (1, 0, 0) runs at (k.cu:1)")
    assert finding.notes[8:] == ("other threads are at 12 other places",)


def test_other_shapes_are_not_tried_after_an_endless_loop(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text(NEVER)
    variant = Variant(
        "conv2d", "", lambda s: [Launch("conv", (1,), (64,), ("x", "w", "y"))], folder=tmp_path, name="never"
    )
    report = check(variant, [ConvShape(1, 1, 3, 3, 1, 1, 1)] * 3, limit=10_000)
    assert [bool(result.finding) for result in report.results] == [True, False, False]
    assert all("endless" in result.refused for result in report.results[1:])
    (finding,) = report.findings
    assert any("__syncthreads" in note for note in finding.notes)


@pytest.mark.parametrize("words", ["0", "1.5", "many"])
def test_text_that_is_not_a_limit(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["check", "--impl", "m1", "--limit", words])
    assert "number of steps" in capsys.readouterr().err


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    "words",
    [
        ["run", "--shapes", "2,1,4,5,1,2,2"],
        pytest.param(["infer", "--batch", "1", "--data", "synthetic"], marks=pytest.mark.exhaustive),
    ],
)
def test_a_kernel_that_does_not_end_is_reported_and_stopped(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = create(str(tmp_path / "mine"), find("m1"))
    kernel = (folder / "kernel.cu").read_text()
    (folder / "kernel.cu").write_text(
        kernel.replace("if (pixel >= P * Q) return;", "while (true) __syncthreads();")
    )
    unchanged = progress.overdue

    def overdue(now: float) -> str:
        """The real function, after which the user presses Ctrl-C."""
        if said := unchanged(now):
            _thread.interrupt_main()
        return said

    monkeypatch.setattr(progress, "SILENCE_S", 0.5)
    monkeypatch.setattr("mini_dnn.progress.overdue", overdue)
    assert main([*words, "--impl", str(folder), "--device", "emulator"]) == 130
    errors = capsys.readouterr().err
    assert errors.count("NOTE: ") == 1
    assert f"the kernels of {folder} have run for" in errors
    assert "Ctrl-C stops them." in errors
    command = errors.split("To look for an endless loop: run.py ")[1].splitlines()[0].split()
    assert main([*command, "--limit", "2000"]) == 1
    assert "endless" in capsys.readouterr().out


def test_work_that_ends_is_not_reported() -> None:
    with progress.running(lambda: "first"):
        assert progress.overdue(time.monotonic()) == ""
        assert progress.overdue(time.monotonic() + progress.SILENCE_S) == "first"
    assert progress.overdue(time.monotonic() + progress.SILENCE_S) == ""
