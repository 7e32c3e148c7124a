"""Two stages: everything except times without a GPU, then the times of submissions that passed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grading_helpers import QUICK, honest, quick_setting
from test_grading_clock import STAND_IN
from test_grading_judge import Wrong, measured_as

from mini_dnn import datasets
from mini_dnn.cli import grade as verb
from mini_dnn.cli import main
from mini_dnn.cli.grade import _print_grade
from mini_dnn.datasets import ImageSet
from mini_dnn.device.nvcc import find_nvcc
from mini_dnn.grading import rubric, run
from mini_dnn.grading.checks import Ground
from mini_dnn.grading.confined import forkserver
from mini_dnn.grading.confined.process import Ended
from mini_dnn.grading.confined.sandbox import Isolation
from mini_dnn.grading.credit import judge
from mini_dnn.grading.grades import FAILED, ISOLATION, PASSED, SKIPPED, Check, Grade
from mini_dnn.grading.measure import Measured, Method
from mini_dnn.grading.run import Told, grade_all
from mini_dnn.grading.stages import CPU, GPU, NOT_CHOSEN, WHOLE, merged, of_stage, passed
from mini_dnn.grading.submission import named
from mini_dnn.nn.numpy_conv import conv2d_forward
from mini_dnn.ops import Arrays
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.work import Found, Local, Work
from mini_dnn.work.items import Record, write_record
from mini_dnn.work.run import Heard

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
    lost = tuple(replace(check, points=0.0, ends="checked" in check.name) for check in ended.checks)
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

    def told(one: Told) -> None:
        heard[one.grade.submission] = one.known

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


class Played(Wrong):
    """A variant that fails in a given way: wrong, found by checked mode, or ended while it is timed."""

    def __init__(self, fault: str, on_gpu: bool) -> None:
        super().__init__(measured_as(1.0))
        self.fault, self.on_gpu = fault, on_gpu

    def solve(self, problem: ConvShape, arrays: Arrays) -> Arrays:
        wrong = {"hidden": 1, "hidden on the GPU": 1 * self.on_gpu, "wrong on the GPU": 2 * self.on_gpu}
        right = wrong.get(self.fault, 0) != problem.N
        return {"y": conv2d_forward(arrays["x"], arrays["w"]) * np.float32(right)}

    def verdict(self, problems: Sequence[ConvShape], seed: int) -> dict[str, Any]:
        if self.fault == "ended in checked mode":
            raise Ended("it crashed")
        found = self.fault == {7: "checked, hidden"}.get(problems[0].H, "checked")
        return {"findings": [{"kind": "race", "what": "a race"}] * found}

    def measure(self, problem: ConvShape, method: Method) -> list[Measured]:
        if self.fault == "ended on the GPU":
            raise Ended("it crashed")
        return super().measure(problem, method)


def judged(asked: rubric.Rubric, fault: str, stage: str) -> Grade:
    has_clock = stage != CPU
    part = of_stage(asked, stage)
    subject = Played(fault, has_clock)
    found = judge(Ground(part, None), part.variants[0], subject, has_clock)  # type: ignore[arg-type]
    return Grade("ann", "r", stage, tuple(found.checks), found.cheat, found.op_ms)


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize(
    ("fault", "points"),
    [
        ("none", 14),
        ("checked", 12),
        ("checked, hidden", 12),
        ("hidden", 6),
        ("hidden on the GPU", 6),
        ("wrong on the GPU", 0),
        ("ended on the GPU", 0),
        ("ended in checked mode", 0),
    ],
)
def test_two_stages_give_the_points_of_one(fault: str, points: float, required: bool) -> None:
    text = TIMED.replace("1, 2, 2]]\n", "1, 2, 2]]\nhidden = [[1, 1, 7, 7, 1, 2, 2]]\n")
    asked = rubric.parse(text.replace("host = true", f"required = {str(required).lower()}"))
    whole, first = judged(asked, fault, WHOLE), judged(asked, fault, CPU)
    both = merged(first, judged(asked, fault, GPU) if passed(first, asked) else None)
    assert (both.points, both.max_points) == (whole.points, whole.max_points)
    assert both.points == points
    assert both.op_ms == whole.op_ms


def test_a_variant_without_points_for_correctness_is_not_timed_after_its_end() -> None:
    """Nothing of it has lost points when it ends."""
    asked = rubric.parse(TIMED.replace("correct = 4, hidden = 3, ", ""))
    assert passed(judged(asked, "none", CPU), asked) == [NAME]
    assert passed(judged(asked, "ended in checked mode", CPU), asked) == []


def test_why_a_variant_is_not_timed_is_reported(asked: rubric.Rubric) -> None:
    both = merged(judged(asked, "hidden", CPU), None)
    (speed,) = (check for check in both.checks if check.name.endswith(": performance"))
    assert (speed.status, speed.message) == (SKIPPED, NOT_CHOSEN)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace grading by grades whose checks pass. The stages and names of those that are made are listed."""
    made: list[str] = []

    def run_items(work: Work, engine: Local, folder: Path, heard: Heard) -> Found:
        found = Found()
        for item in work.items:
            known = work.result(item.name)
            if known is None:
                stage = work.common["stage"]
                made.append(f"{stage} {item.name}".strip())
                one = replace(grade("cuda" if stage == GPU else "emulator"), submission=item.name)
                write_record(work.results, item.name, work.keys[item.name], Record(asdict(one), 1.0))
            found.results[item.name] = known or work.result(item.name)
            heard(item.name, found.results[item.name], known is not None)
        return found

    monkeypatch.setattr(run, "run_items", run_items)
    return made


def test_each_stage_reports_each_submission(
    tmp_path: Path, asked: rubric.Rubric, computed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    submissions = named([honest(tmp_path, name) for name in ("ada", "bob")])
    setting = quick_setting(tmp_path, rubric=asked, device="cuda")
    for names in ((0, 1), (0, 1), (0,)):
        grade_all([submissions[i] for i in names], setting, _print_grade, Local(), Local())
    lines = [line.split()[:6] for line in capsys.readouterr().out.splitlines()]
    assert lines[:4] == [
        ["cpu", "1/2", "ada", "9", "of", "14"],
        ["cpu", "2/2", "bob", "9", "of", "14"],
        ["gpu", "1/2", "ada", "12", "of", "12"],
        ["gpu", "2/2", "bob", "12", "of", "12"],
    ]
    assert [line[:2] for line in lines[4:]] == [["1/2", "ada"], ["2/2", "bob"]] * 2 + [["1/1", "ada"]]
    assert computed == ["cpu ada", "cpu bob", "gpu ada", "gpu bob"]


def test_grades_for_other_images_are_not_reused(
    tmp_path: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data set "auto" counts as the one that is found."""
    text = QUICK.replace("hidden = 3 }", "hidden = 3, accuracy = 1 }") + "[accuracy]\nbatch = 10\n"
    there = ["synthetic"]

    def load(name: str, split: str, data_dir: Path | None) -> ImageSet:
        empty = np.zeros(0, np.uint8)
        found = there[0] if name == "auto" else name
        return ImageSet(found, split, empty, empty, "", "no files" if found != name == "auto" else "")

    monkeypatch.setattr(datasets, "load", load)
    submissions = named([honest(tmp_path, "ada")])
    setting = quick_setting(tmp_path, rubric=rubric.parse(text))
    for data, data_dir, expected in (
        ("auto", None, 1),
        ("synthetic", None, 1),
        ("auto", None, 1),
        ("fashion-mnist", None, 2),
        ("fashion-mnist", tmp_path, 2),
    ):
        grade_all(submissions, replace(setting, data=data, data_dir=data_dir))
        assert len(computed) == expected, data
    there[0] = "fashion-mnist"
    grade_all(submissions, setting)
    assert len(computed) == 2, "the files were found, and they are the same"
    there[0] = "synthetic"
    grade_all(submissions, setting)
    assert len(computed) == 3


def test_who_stops_two_stages_is_told_where_results_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verb, "grade_all", stopped)
    monkeypatch.setattr(verb, "check_setting", lambda *args: None)
    (tmp_path / "rubric.toml").write_text(TIMED)
    (tmp_path / "profile.toml").write_text("[gpu]\nworkers = 1\n")
    words = ["grade", str(honest(tmp_path, "ada")), "--rubric", str(tmp_path / "rubric.toml")]
    words += ["--out", str(tmp_path / "out")]
    assert main(words) == 130
    assert "two stages" not in capsys.readouterr().out
    assert main([*words, "--profile", str(tmp_path / "profile.toml")]) == 130
    assert f"the results of the two stages in {tmp_path / 'out/stages'}" in capsys.readouterr().out
