"""Points for times, and for results that are right always, sometimes, or only for the public inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from grading_helpers import QUICK

from mini_dnn.grading.asked import Rubric
from mini_dnn.grading.checks import HIDDEN_MESSAGE, Ground, Judge
from mini_dnn.grading.credit import judge
from mini_dnn.grading.grades import Check
from mini_dnn.grading.measure import Measured, Method
from mini_dnn.grading.outcome import Cheat
from mini_dnn.grading.plans import Head
from mini_dnn.grading.rubric import load
from mini_dnn.nn.numpy_conv import conv2d_forward
from mini_dnn.ops import Arrays
from mini_dnn.ops.conv2d import ConvShape


class Subject:
    """A variant that has already been measured."""

    head = Head("conv2d", "fp32", 75, "", False)

    def __init__(self, *measured: Measured) -> None:
        self.measured = list(measured)
        self.asked: list[tuple[ConvShape, Method]] = []

    def measure(self, problem: ConvShape, method: Method) -> list[Measured]:
        self.asked.append((problem, method))
        return self.measured


def measured_as(op_ms: float, refused: str = "") -> Measured:
    return Measured(op_ms, (op_ms,), 0.1, (None, None), refused)


def rubric_with(tmp_path: Path, performance: str) -> Rubric:
    path = tmp_path / "rubric.toml"
    path.write_text(
        QUICK.replace("hidden = 3 }", f"hidden = 3, performance = 10 }}\n[performance]\n{performance}")
    )
    return load(path)


@pytest.mark.parametrize(
    ("performance", "points", "said"),
    [
        (
            "batch = 1000\nfull = 10\nnone = 50",
            5.0,
            "30.000 ms at batch 1000; 10 ms earns all points, 50 none",
        ),
        ("batch = 1000\nfull = 5\nnone = 30", 0.0, "30.000 ms"),
        (
            'batch = 1000\nfull = 0.25\nnone = 1\nreference = "m2/unroll_gemm"',
            10 / 3,
            "0.750 of m2/unroll_gemm's",
        ),
    ],
)
def test_points_for_time(performance: str, points: float, said: str, tmp_path: Path) -> None:
    rubric = rubric_with(tmp_path, performance)
    asked, subject = rubric.variants[0], Subject(measured_as(10.0), measured_as(5.0))
    made = Judge(Ground(rubric, None, lambda: 40.0), asked, subject, has_clock=True)  # type: ignore[arg-type]
    outcome = made.performance()
    assert made.op_ms == 30.0, "two layers, each in two parts"
    assert said in outcome.message
    assert outcome.fraction * 10 == pytest.approx(points)
    assert (outcome.status == "passed") == (points > 0)
    assert subject.asked[0] == (ConvShape(1000, 1, 86, 86, 4, 7, 7), Method("fp16", 5, 10))


class Wrong(Subject):
    """A quick variant that is right at all shapes except those with three channels."""

    def limit_for(self, problem: ConvShape) -> str:
        return ""

    def planned(self, problem: ConvShape) -> None:
        pass

    def compile(self, planned: object) -> None:
        pass

    def close(self) -> None:
        pass

    def solve(self, problem: ConvShape, arrays: Arrays) -> Arrays:
        return {"y": conv2d_forward(arrays["x"], arrays["w"]) * np.float32(problem.C != 3)}


def test_no_points_for_the_time_of_what_is_wrong_at_hidden_shapes(tmp_path: Path) -> None:
    rubric = rubric_with(tmp_path, "batch = 1000\nfull = 10\nnone = 50")
    found = judge(Ground(rubric, None), rubric.variants[0], Wrong(measured_as(1.0)), has_clock=True)  # type: ignore[arg-type]
    points = {check.name.partition(": ")[2]: (check.status, check.points) for check in found.checks}
    assert points["correct"] == ("passed", 4)
    assert points["hidden"] == ("failed", 0)
    assert points["performance"] == ("passed", 0)
    assert found.op_ms is None, "no place on the leaderboard"


class Scripted(Wrong):
    """A variant whose calls are right and wrong in a given order."""

    def __init__(self, calls: str) -> None:
        super().__init__()
        self.calls = list(calls)

    def solve(self, problem: ConvShape, arrays: Arrays) -> Arrays:
        return {"y": conv2d_forward(arrays["x"], arrays["w"]) * np.float32(self.calls.pop(0) == "r")}


@pytest.mark.parametrize(
    ("calls", "refused"),
    [
        ("rw" + 3 * "rw", "right for the published inputs, wrong for other inputs"),
        ("rw" + "w", ""),
        ("rw" + "rr", ""),
        ("rw" + 2 * "rw" + "w", ""),
    ],
)
def test_what_is_right_now_and_then_is_no_cheat(calls: str, refused: str, tmp_path: Path) -> None:
    """The first call has the public inputs, and the second call has others."""
    rubric = rubric_with(tmp_path, "batch = 1000\nfull = 10\nnone = 50")
    subject = Scripted(calls)
    found = judge(Ground(rubric, None), rubric.variants[0], subject, has_clock=True)  # type: ignore[arg-type]
    correct = next(check for check in found.checks if check.name.endswith(": correct"))
    assert (correct.status, sum(check.points for check in found.checks)) == ("failed", 0)
    assert refused in found.cheat
    assert bool(refused) == bool(found.cheat)
    assert ("a race" in correct.message) != bool(refused)
    assert not subject.calls


def test_a_time_that_does_not_count(tmp_path: Path) -> None:
    rubric = rubric_with(tmp_path, "batch = 1000\nfull = 10\nnone = 50")
    subject = Subject(measured_as(0.001, "less than the time that moving its bytes takes"))
    made = Judge(Ground(rubric, None), rubric.variants[0], subject, has_clock=True)  # type: ignore[arg-type]
    with pytest.raises(Cheat, match="conv1: less than"):
        made.performance()


def test_no_time_without_a_clock(tmp_path: Path) -> None:
    rubric = rubric_with(tmp_path, "batch = 1000\nfull = 10\nnone = 50")
    outcome = Judge(Ground(rubric, None), rubric.variants[0], Subject(), has_clock=False).performance()  # type: ignore[arg-type]
    assert outcome.status == "skipped"
    assert "the emulator cannot measure GPU time" in outcome.message


class Square(Wrong):
    """A variant that supports only square filters."""

    def limit_for(self, problem: ConvShape) -> str:
        return "" if problem.R == problem.S else "square filters only"


def earned(tmp_path: Path, subject: Subject, text: str) -> dict[str, Check]:
    path = tmp_path / "rubric.toml"
    path.write_text(text)
    rubric = load(path)
    found = judge(Ground(rubric, None), rubric.variants[0], subject, has_clock=False)  # type: ignore[arg-type]
    return {check.name.partition(": ")[2]: check for check in found.checks}


def test_a_refused_shape_is_reported_as_such(tmp_path: Path) -> None:
    found = earned(tmp_path, Square(), QUICK)
    assert found["compiles"].status == "passed"
    assert (found["correct"].status, found["correct"].points) == ("failed", 0)
    message = found["correct"].message
    assert "this shape is required, but the variant refuses it: square filters only" in message
    square = QUICK.replace("3, 2, 5]", "3, 3, 3]").replace("1, 3, 12, 10, 5, 4, 3]", "1, 2, 12, 10, 5, 4, 4]")
    found = earned(tmp_path, Square(), square)
    assert [check.status for check in found.values()] == ["passed"] * 3
    assert sum(check.points for check in found.values()) == 7


def test_points_per_shape(tmp_path: Path) -> None:
    more = "[2, 2, 9, 9, 3, 3, 3], [1, 1, 5, 5, 1, 2, 2], [1, 1, 5, 5, 1, 1, 1]"
    text = QUICK.replace("3, 2, 5]]", f"3, 2, 5], {more}]\nper_shape = true")
    found = earned(tmp_path, Square(), text)
    assert (found["correct"].status, found["correct"].points) == ("failed", 3.0)
    assert found["correct"].message.startswith("right at 3 of 4 shapes\n")
    assert found["hidden"].status == "skipped"
    text = QUICK.replace("shapes = [[1, 3,", "per_shape = true\nshapes = [[1, 2, 9, 9, 3, 3, 3], [1, 3,")
    found = earned(tmp_path, Wrong(), text)  # wrong with three channels
    assert (found["hidden"].status, found["hidden"].points) == ("failed", 1.5)
    assert found["hidden"].message == HIDDEN_MESSAGE
    assert "right at 1 of 2 shapes" in found["hidden"].staff


def test_a_failure_names_the_command_that_reproduces_it(tmp_path: Path) -> None:
    text = QUICK.replace("2, 2, 9, 21, 3, 2, 5", "2, 3, 9, 9, 3, 3, 3")  # three channels
    message = earned(tmp_path, Wrong(), text)["correct"].message
    assert message.endswith(
        "\nreproduce it, with the folder of your variant in place of FOLDER: "
        "run.py run FOLDER --shapes 2,3,9,9,3,3,3 --seed 1 --check"
    )
