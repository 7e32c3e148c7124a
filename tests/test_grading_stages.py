"""Two stages: everything except times without a GPU, then the times of submissions that passed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from grading_helpers import QUICK, honest, quick_setting
from test_grading_clock import STAND_IN

from mini_dnn.device.nvcc import find_nvcc
from mini_dnn.grading import rubric
from mini_dnn.grading.confined import forkserver
from mini_dnn.grading.confined.sandbox import Isolation
from mini_dnn.grading.grades import FAILED, ISOLATION, PASSED, SKIPPED, Check, Grade
from mini_dnn.grading.run import grade_all
from mini_dnn.grading.stages import GPU, merged, of_stage, passed
from mini_dnn.grading.submission import named
from mini_dnn.work import Local

TIMED = (
    QUICK.replace("hidden = 3 }", "hidden = 3, checked = 2, performance = 5 }")
    + "[checked]\nshapes = [[1, 1, 5, 5, 1, 2, 2]]\n"
    + "[performance]\nbatch = 1\nfull = 1000\nnone = 2000\nwarm_up = 0\nrepeats = 1\n"
)
NAME = "layers/custom"
WORTH = {"compiles": 0.0, "correct": 4.0, "checked": 2.0, "performance": 5.0, "hidden": 3.0}


@pytest.fixture
def asked(tmp_path: Path) -> rubric.Rubric:
    (tmp_path / "rubric.toml").write_text(TIMED)
    return rubric.load(tmp_path / "rubric.toml")


def grade(device: str = "emulator", refused: str = "", **statuses: str) -> Grade:
    """A grade whose checks passed, except for those that are named."""
    known = {"performance": SKIPPED} if device == "emulator" else {}
    left_out = set() if device == "emulator" else {"checked"}
    made = [
        Check(f"{NAME}: {name}", status, worth * (status == PASSED), worth, device)
        for name, worth in WORTH.items()
        if name not in left_out
        for status in [{**known, **statuses}.get(name, PASSED)]
    ]
    op_ms = None if device == "emulator" else 7.0
    return Grade("ann", "r", device, (*made, Check(ISOLATION, PASSED, staff=device)), refused, op_ms)


def test_what_passed_is_timed(asked: rubric.Rubric) -> None:
    assert passed(grade(), asked) == [NAME]
    assert passed(grade(checked=FAILED), asked) == [NAME], "it has no points for that, and its speed counts"
    for name in ("compiles", "correct", "hidden"):
        assert passed(grade(**{name: FAILED}), asked) == []
    assert passed(grade(refused="a cheat"), asked) == []


def test_what_the_emulator_cannot_run_is_timed(asked: rubric.Rubric) -> None:
    """A submission that was ended by force is not timed."""
    assert passed(grade(compiles=SKIPPED, correct=SKIPPED, hidden=SKIPPED), asked) == [NAME]
    ended = grade()
    lost = tuple(replace(check, points=0.0) for check in ended.checks)
    assert passed(replace(ended, checks=lost), asked) == []


def test_a_gpu_does_not_run_checked_mode_again(asked: rubric.Rubric) -> None:
    (one,) = of_stage(asked, GPU).variants
    assert dict(one.points) == {"correct": 4, "hidden": 3, "performance": 5}


def test_what_the_gpu_has_shown_counts() -> None:
    both = merged(grade(), grade("cuda"))
    assert (both.points, both.max_points, both.op_ms, both.device) == (14, 14, 7.0, "cuda")
    assert [check.name.rpartition(": ")[2] for check in both.checks] == [*WORTH, ISOLATION]
    assert merged(grade(correct=FAILED), None).points == 5


def test_what_is_wrong_on_the_gpu_alone_earns_nothing() -> None:
    both = merged(grade(), grade("cuda", correct=FAILED, performance=SKIPPED, hidden=SKIPPED))
    assert both.points == 0
    assert "no credit, as it failed on the GPU" in both.checks[2].message
    assert merged(grade(), grade("cuda", refused="a cheat")).points == 0


@pytest.mark.exhaustive
@pytest.mark.skipif(not Isolation().full, reason=f"no isolation here: {Isolation()}")
@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: kernels are compiled for a GPU")
def test_only_what_passed_is_run_on_a_gpu(
    tmp_path: Path, asked: rubric.Rubric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU is a stand-in."""
    monkeypatch.setattr(forkserver, "START", STAND_IN)
    folders = [honest(tmp_path, name) for name in ("ada", "bob")]
    kernel = folders[1] / "kernel.cu"
    kernel.write_text(kernel.read_text().replace("acc +=", "acc -="))
    setting = quick_setting(tmp_path, rubric=asked, device="cuda")
    heard: dict[str, bool] = {}

    def told(one: Grade, known: bool) -> None:
        heard[one.submission] = known

    for known in (False, True):
        heard.clear()
        grades, failures = grade_all(named(folders), setting, told, Local(), Local())
        assert not failures
        assert [one.points for one in grades] == [14, 0]
        assert grades[0].op_ms == 2.0, "a launch of each layer"
        assert heard == {"ada": known, "bob": known}
    assert [file.name for file in (setting.out / "stages/gpu").iterdir()] == ["ada.json"]
    record = json.loads((setting.out / "grades/ada.json").read_text())
    assert record["value"]["op_ms"] == 2.0
