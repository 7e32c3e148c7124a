"""Grading on a GPU: times that repeat, and cheats that meet a real clock."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from grading_helpers import QUICK, assemble, expected, names, quick_setting

from mini_dnn.device import Device
from mini_dnn.grading import rubric
from mini_dnn.grading.grader import Grader
from mini_dnn.grading.submission import Submission
from mini_dnn.variant import ROOT

pytestmark = pytest.mark.gpu


def grader_at(folder: Path, precision: str, performance: str) -> Grader:
    text = QUICK.replace("hidden = 3 }", "performance = 10 }").replace("seconds = 4", "seconds = 120")
    path = folder / "gpu.toml"
    path.write_text(f"{text.replace('fp16', precision)}\n[performance]\n{performance}\n")
    return Grader(quick_setting(folder, rubric=rubric.load(path), device="cuda"), folder)


@pytest.fixture
def exact(cuda: Device, tmp_path: Path) -> Iterator[Grader]:
    """A grader for few images: what some cheats keep in a variable must fit."""
    with grader_at(tmp_path, "fp32", "batch = 20\nfull = 1000\nnone = 2000") as grader:
        yield grader


@pytest.mark.parametrize("name", names("timed"))
def test_cheats_with_the_clock(name: str, exact: Grader, tmp_path: Path) -> None:
    grade = exact.grade(Submission(name, assemble(name, tmp_path)))
    assert re.search(expected(name), grade.refused), grade.checks
    assert grade.points == 0


def test_an_honest_one(exact: Grader) -> None:
    grade = exact.grade(Submission("direct", ROOT / "milestones/m1/direct"))
    assert (grade.points, grade.refused) == (14, ""), grade.checks
    assert grade.op_ms is not None


def test_a_score_repeats_within_a_hundredth(cuda: Device, tmp_path: Path) -> None:
    performance = 'batch = 10000\nreference = "m2/unroll_gemm"\nfull = 0.01\nnone = 1.0'
    points = []
    for run in range(3):
        folder = tmp_path / str(run)
        folder.mkdir()
        with grader_at(folder, "fp16", performance) as grader:
            grade = grader.grade(Submission("custom", ROOT / "layers/custom"))
        assert not grade.refused, grade.refused
        points.append(next(c.points for c in grade.checks if c.name.endswith("performance")))
    assert min(points) > 0
    assert max(points) - min(points) <= 0.01 * 10
