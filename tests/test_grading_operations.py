"""Submissions for operations other than the default one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from grading_helpers import quick_setting
from grading_sources import HOST, POOL_KERNEL, POOL_PLAN, SCRATCH_KERNEL, SCRATCH_PLAN

from mini_dnn.grading import rubric
from mini_dnn.grading.confined.sandbox import Isolation
from mini_dnn.grading.grader import Grader
from mini_dnn.grading.grades import Check, Grade
from mini_dnn.grading.submission import Submission
from mini_dnn.paths import ROOT

pytestmark = pytest.mark.skipif(not Isolation().full, reason=f"no isolation here: {Isolation()}")

RUBRIC = """
name = "quick"
op = "{op}"

[limits]
seconds = 300  # far above what any answer takes on a busy machine

[correct]
shapes = {shown}

[hidden]
shapes = {hidden}
seeds = [4242]

[checked]
shapes = {shown}

[[variant]]
name = "{name}"
precision = "{precision}"
points = {{ correct = 4, hidden = 3, checked = 2 }}
"""
POOL = {
    "op": "conv2d_relu_pool",
    "name": "conv2d_relu_pool/mine",
    "shown": "[[2, 3, 9, 12, 4, 3, 2, 2], [1, 2, 7, 6, 3, 2, 3, 4]]",
    "hidden": "[[3, 1, 8, 9, 2, 3, 3, 3]]",
    "precision": "fp32",
}
NETWORK = {
    "op": "lenet",
    "name": "networks/lenet/mine",
    "shown": "[[2], [1, true]]",
    "hidden": "[[3]]",
    "precision": "tf32",
}
ROWS = {
    "op": "softmax",
    "name": "softmax/mine",
    "shown": "[[3, 7], [2, 40]]",
    "hidden": "[[5, 33]]",
    "precision": "fp32",
}

Grades = Callable[[Path, dict[str, str]], Grade]


@pytest.fixture
def graded(tmp_path: Path) -> Iterator[Grades]:
    """A function that grades submissions by the quick rubric of an operation."""
    with ExitStack() as graders:

        def grade(folder: Path, asked: dict[str, str]) -> Grade:
            (tmp_path / "rubric.toml").write_text(RUBRIC.format(**asked))
            setting = quick_setting(tmp_path, rubric=rubric.load(tmp_path / "rubric.toml"))
            grader = graders.enter_context(Grader(setting, tmp_path))
            return grader.grade(Submission("mine", folder))

        yield grade


def checks(grade: Grade) -> dict[str, Check]:
    return {check.name.rpartition(": ")[2]: check for check in grade.checks}


def submitted(folder: Path, plan: str, kernel: str) -> Path:
    """A folder with these two files."""
    folder.mkdir(parents=True)
    (folder / "variant.py").write_text(plan)
    (folder / "kernel.cu").write_text(kernel)
    return folder


def test_a_layer_with_its_pool(graded: Grades, tmp_path: Path) -> None:
    grade = graded(submitted(tmp_path / "mine", POOL_PLAN, POOL_KERNEL), POOL)
    assert (grade.points, grade.refused) == (9, ""), grade.checks


@pytest.mark.parametrize(
    ("old", "new", "check", "said"),
    [
        ("most = 0", "most = -1e9f", "correct", "elements differ from float64; the first at (0, "),
        (
            "min(Q, at % columns * pool + pool)",
            "at % columns * pool + pool",
            "correct",
            "differ from float64",
        ),
        ("pool) {", "pool) {\n  if (pool == 3) return;", "hidden", "a hidden test failed"),
    ],
)
def test_a_layer_that_is_wrong(
    old: str, new: str, check: str, said: str, graded: Grades, tmp_path: Path
) -> None:
    assert old in POOL_KERNEL
    grade = graded(submitted(tmp_path / "mine", POOL_PLAN, POOL_KERNEL.replace(old, new, 1)), POOL)
    found = checks(grade)[check]
    assert (found.status, found.points) == ("failed", 0)
    assert said in found.message
    assert (grade.points == 0) == (check == "correct")


def test_a_race_in_it(graded: Grades, tmp_path: Path) -> None:
    """Each output is written twice, by threads of two blocks."""
    twice = POOL_PLAN.replace("(ceil_div(rows * columns, 64), M, s.N)", "(1, 2 * M, s.N)")
    kernel = POOL_KERNEL.replace("m = blockIdx.y,", "m = blockIdx.y % M,")
    grade = graded(submitted(tmp_path / "mine", twice, kernel), POOL)
    assert checks(grade)["correct"].status == "passed"
    assert "race" in checks(grade)["checked"].message
    assert grade.points == 7


def network(folder: Path, name: str = "layer_by_layer") -> Path:
    """Create a repository with a network, and return the network's folder."""
    target = folder / "networks/lenet/mine"
    shutil.copytree(ROOT / "networks/lenet" / name, target)
    return target


def test_a_network_in_tf32(graded: Grades, tmp_path: Path) -> None:
    file = network(tmp_path / "mine") / "variant.py"
    text = file.read_text()
    file.write_text(text.replace('op="lenet",', 'op="lenet",\n    precision="tf32",'))
    grade = graded(tmp_path / "mine", NETWORK)
    assert (grade.points, grade.refused) == (9, ""), grade.checks
    assert checks(grade)["compiles"].staff == "claims tf32"


def test_a_network_that_is_wrong(graded: Grades, tmp_path: Path) -> None:
    file = network(tmp_path / "mine") / "kernel.cu"
    text = file.read_text()
    assert "fmaxf(" in text
    file.write_text(text.replace("fmaxf(", "fminf("))
    grade = graded(tmp_path / "mine", NETWORK)
    assert grade.points == 0
    assert "(2,1,86,86) float32 -> (2,10), inputs of seed 0:" in checks(grade)["correct"].message
    assert "of 20 elements differ from float64; the first at (0, 0)" in checks(grade)["correct"].message


def test_a_network_whose_set_up_reads_images(graded: Grades, tmp_path: Path) -> None:
    file = network(tmp_path / "mine", "fused_pool") / "variant.py"
    text = file.read_text()
    file.write_text(text.replace('CopyToSymbol("w2", "conv2.weight")', 'CopyToSymbol("w2", "images")'))
    grade = graded(tmp_path / "mine", NETWORK)
    assert grade.points == 0
    assert (
        "the setup names a buffer 'images'; expected one of conv1.weight" in checks(grade)["compiles"].message
    )


def test_scratch_of_other_types(graded: Grades, tmp_path: Path) -> None:
    folder = submitted(tmp_path / "mine/ladders/softmax/mine", SCRATCH_PLAN, SCRATCH_KERNEL)
    grade = graded(tmp_path / "mine", ROWS)
    assert (grade.points, grade.refused) == (9, ""), grade.checks
    kernel = SCRATCH_KERNEL.replace("unsigned char* flags", "int* flags")
    (folder / "kernel.cu").write_text(kernel)
    grade = graded(tmp_path / "mine", ROWS)
    assert "out-of-bounds: " in checks(grade)["checked"].message, "a buffer of bytes is not one of ints"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('{"ones"', '{"x"', "scratch has a buffer 'x'; x, y are given"),
        ('"float16"', '"S7"', "scratch buffer 'ones' is of 'bytes56'; expected one of bool, int8,"),
        ('"float16"', '"half precision"', "scratch returned"),
        ('op="softmax"', 'op="conv2d"', "it computes conv2d, but softmax is required"),
        (
            '"ones", "flags", p.N',
            '"zeros", "flags", p.N',
            "names a buffer 'zeros'; expected one of x, y, ones, flags",
        ),
    ],
)
def test_what_a_plan_may_not(old: str, new: str, said: str, graded: Grades, tmp_path: Path) -> None:
    assert old in SCRATCH_PLAN
    grade = graded(submitted(tmp_path / "mine", SCRATCH_PLAN.replace(old, new, 1), SCRATCH_KERNEL), ROWS)
    assert (grade.points, grade.refused) == (0, "")
    assert said in checks(grade)["compiles"].message


def test_a_numpy_function(graded: Grades, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    file = tmp_path / "mine/variant.py"
    file.write_text(HOST)
    assert "a kernel is required" in checks(graded(tmp_path / "mine", ROWS))["compiles"].message
    taken = ROWS | {"precision": 'fp32"\nhost = true #'}
    grade = graded(tmp_path / "mine", taken)
    assert (grade.points, checks(grade)["checked"].status) == (7, "skipped"), grade.checks
    file.write_text(HOST.replace("idea=", "refuses=lambda p: 'L is 40' * (p.L == 40), idea="))
    message = checks(graded(tmp_path / "mine", taken))["correct"].message
    assert "2 rows of 40: this shape is required, but the variant refuses it: L is 40" in message
    file.write_text(HOST.replace("return powers / ", "return powers + 0 * "))
    message = checks(graded(tmp_path / "mine", taken))["correct"].message
    assert "hint: the result is the same as when the powers are not divided by their sum" in message
