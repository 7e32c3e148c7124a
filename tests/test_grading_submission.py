"""Submissions: their variants, their plans, and what their authors are told."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from grading_helpers import QUICK, honest, isolated_grader, quick_setting
from grading_helpers import grader as grader
from grading_helpers import repository as repository

from mini_dnn.grading import rubric
from mini_dnn.grading.confined import sandbox
from mini_dnn.grading.grader import Grader
from mini_dnn.grading.submission import Submission
from mini_dnn.paths import ROOT


@pytest.fixture
def logging_grader(tmp_path: Path) -> Iterator[Grader]:
    with isolated_grader(tmp_path, QUICK + "[log]\npoints = 2\n") as opened:
        yield opened


def test_a_missing_work_log(logging_grader: Grader, tmp_path: Path) -> None:
    grade = logging_grader.grade(Submission("ann", honest(tmp_path)))
    (check,) = (check for check in grade.checks if check.name == "work log")
    assert (check.status, check.points, check.max_points) == ("failed", 0, 2)
    assert grade.max_points == 4 + 3 + 2
    stage = logging_grader.grade(Submission("ann", honest(tmp_path, "again")), variants=[])
    assert [check.name for check in stage.checks] == ["isolation"], "a second stage leaves the log alone"


def test_a_repository(repository: Path, grader: Grader) -> None:
    grade = grader.grade(Submission("repository", repository))
    checks = {check.name: check for check in grade.checks}
    assert not grade.refused
    assert checks["layers/custom: hidden"].points == 3
    assert checks["m1/cpu: correct"].points == 2
    missing = checks["m1/tiled_direct: submitted"]
    assert (missing.status, missing.points, missing.max_points) == ("failed", 0, 2)
    extra = checks["m3/restrict: correct"]
    assert (extra.points, extra.max_points) == (1, 0), "extra points, not in the maximum"
    assert checks["m3/cublas: correct"].status == "skipped"
    assert "the emulator cannot" in checks["m3/cublas: correct"].message
    assert checks["m3/sweep: submitted"].status == "skipped"
    assert (grade.points, grade.max_points) == (4 + 3 + 2 + 1, 4 + 3 + 2 + 2)
    assert "Landlock" in checks["isolation"].staff
    assert ("other files do not exist" in checks["isolation"].staff) == sandbox.can_hide_files()


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("variant.py", "VARIANT = 1 +", "variant.py cannot be loaded: line 1: invalid syntax"),
        ("kernel.cu", "extern __global__", "does not compile"),
        ("variant.py", None, "there is no variant.py"),
        ("kernel.cu", None, "there is no .*kernel.cu"),
    ],
)
def test_what_cannot_be_run(
    file: str, text: str | None, message: str, grader: Grader, tmp_path: Path
) -> None:
    folder = honest(tmp_path)
    (folder / file).unlink() if text is None else (folder / file).write_text(text)
    grade = grader.grade(Submission("honest", folder))
    failed = next(check for check in grade.checks if check.status == "failed")
    assert pytest.approx(0) == grade.points
    assert re.search(message, failed.message), failed
    assert str(grader._work) not in failed.message, "where it was graded is nobody's business"


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ("", "past the end of"),
        ("y[1 << 28] = 1;", "address 0x…, which is near no buffer"),  # the address differs from run to run
    ],
)
def test_a_crash_is_reported_with_its_shape(instead: str, said: str, grader: Grader, tmp_path: Path) -> None:
    folder = honest(tmp_path)
    kernel = (folder / "kernel.cu").read_text()
    (folder / "kernel.cu").write_text(kernel.replace("if (pixel >= P * Q) return;", instead))
    grade = grader.grade(Submission("honest", folder))
    check = {check.name: check for check in grade.checks}["layers/custom: correct"]
    assert check.message.startswith("(2, 2, 9, 21) * (3, 2, 2, 5) -> (2, 3, 8, 17), inputs of seed 1:\n")
    assert said in check.message


def test_numpy_in_place_of_a_kernel(repository: Path, grader: Grader) -> None:
    """The rubric accepts it for m1/cpu, but not for a variant that needs a kernel."""
    shutil.rmtree(repository / "milestones/m3/restrict")
    shutil.copytree(ROOT / "milestones/m1/cpu", repository / "milestones/m3/restrict")
    checks = {check.name: check for check in grader.grade(Submission("repository", repository)).checks}
    assert checks["m1/cpu: correct"].points == 2
    assert checks["m3/restrict: correct"].points == 0
    assert "a kernel is required" in checks["m3/restrict: compiles"].message


def test_hidden_details_are_for_staff_alone(grader: Grader, tmp_path: Path) -> None:
    folder = honest(tmp_path)
    kernel = (folder / "kernel.cu").read_text()
    (folder / "kernel.cu").write_text(
        kernel.replace("if (pixel >= P * Q) return;", "if (pixel >= P * Q || C == 3) return;")
    )
    grade = grader.grade(Submission("honest", folder))
    check = {check.name: check for check in grade.checks}["layers/custom: hidden"]
    assert (check.status, check.points, check.hidden) == ("failed", 0, True)
    assert "(1, 3, 12, 10)" in check.staff
    assert "seed 4242" in check.staff
    assert "12" not in check.message
    assert "4242" not in check.message
    assert grade.points == 4, "of a kernel that is right where it was shown what to do"


def test_what_a_terminal_would_obey(grader: Grader, tmp_path: Path) -> None:
    folder = honest(tmp_path)
    (folder / "variant.py").write_text("raise ValueError('\\x1b[2J\\x1b]0;gone\\x07')")
    (check, *_) = grader.grade(Submission("honest", folder)).checks
    assert check.message.isprintable()
    assert "?[2J?]0;gone?" in check.message


def test_a_plan_that_shows_hidden_shapes(grader: Grader, tmp_path: Path) -> None:
    folder = honest(tmp_path)
    text = (folder / "variant.py").read_text()
    told = 'plan(s: ConvShape) -> list[Launch]:\n    assert s.C != 3, f"told {s}"\n'
    (folder / "variant.py").write_text(text.replace("plan(s: ConvShape) -> list[Launch]:\n", told))
    grade = grader.grade(Submission("honest", folder))
    assert grade.points == 4
    assert not any("told" in check.message for check in grade.checks)
    assert any("told" in check.staff for check in grade.checks)


def test_a_plan_that_tells_of_hidden_shapes_later(tmp_path: Path) -> None:
    """It would tell them in a check whose message the author can read."""
    (tmp_path / "checked.toml").write_text(
        QUICK.replace(
            "hidden = 3 }", "hidden = 3, checked = 3 }\n[checked]\nshapes = [[2, 3, 9, 11, 5, 3, 2]]"
        )
    )
    folder = honest(tmp_path)
    text = (folder / "variant.py").read_text()
    told = "SEEN = []\n\n\ndef plan(s: ConvShape) -> list[Launch]:\n    SEEN.append(s)\n"
    told += '    assert s.W != 11, f"told {SEEN}"\n'
    (folder / "variant.py").write_text(text.replace("def plan(s: ConvShape) -> list[Launch]:\n", told))
    setting = quick_setting(tmp_path, rubric=rubric.load(tmp_path / "checked.toml"))
    with Grader(setting, tmp_path) as grader:
        checks = grader.grade(Submission("honest", folder)).checks
    (check,) = [check for check in checks if "told" in check.message]
    assert "W=21" in check.message, "the shape that is shown"
    assert "W=10" not in check.message, "the hidden one"


LIBRARY = (
    "argparse, bisect, collections, copy, csv, dataclasses, datetime, decimal, enum, fractions, functools, "
    "heapq, inspect, io, itertools, json, logging, math, operator, os, pathlib, pprint, random, re, "
    "statistics, string, sys, textwrap, time, traceback, types, typing, warnings, numpy.fft, numpy.linalg, "
    "numpy.polynomial, numpy.testing"
)


def test_what_an_honest_plan_may_do(grader: Grader, tmp_path: Path) -> None:
    folder = honest(tmp_path)
    text = (folder / "variant.py").read_text()
    (folder / "sizes.json").write_text('{"threads": 64}')
    more = f"""
import {LIBRARY}
from mini_dnn.variant.plan import Images
here = pathlib.Path(__file__).parent
THREADS = json.loads((here / "sizes.json").read_text())["threads"]
random.seed(1)
logging.getLogger().warning("a message")
print("sizes", THREADS)
assert sys.dont_write_bytecode, "or an import would write files"
"""
    head, body = text.split("\n\n\ndef plan", 1)
    (folder / "variant.py").write_text(f"{head}\n{more}\n\ndef plan{body}")
    grade = grader.grade(Submission("honest", folder))
    assert not grade.refused
    assert grade.points == 7, grade.checks


def test_half_a_letter_in_a_text_ends_nothing(grader: Grader, tmp_path: Path) -> None:
    """A lone surrogate cannot be encoded, but the text around it reaches the author."""
    folder = honest(tmp_path)
    text = (folder / "variant.py").read_text()
    (folder / "variant.py").write_text(f'{text}\nraise ValueError("unknown tile \\ud800")\n')
    (check, *_) = grader.grade(Submission("half", folder)).checks
    assert "unknown tile" in check.message
    assert "ended with status" not in check.message
