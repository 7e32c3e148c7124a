"""No cheat earns a point, each is told why, and none leaves anything behind."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from grading_helpers import CHEATS, assemble, expected, honest, names, quick_setting

from mini_dnn.grading.grader import Grader
from mini_dnn.grading.sandbox import Isolation
from mini_dnn.grading.submission import Submission

pytestmark = pytest.mark.skipif(not Isolation().full, reason=f"no isolation here: {Isolation()}")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Grader]]:
    """Results with a grade in them, a rubric, another submission, and a grader."""
    folder = tmp_path_factory.mktemp("grading")
    setting = quick_setting(folder)
    (setting.out / "grades").mkdir(parents=True)
    (setting.out / "grades" / "other.json").write_text("{}")
    honest(folder, "other")
    work = setting.out / ".work"
    work.mkdir()
    with Grader(setting, work) as grader:
        yield folder, grader


def skipped(name: str) -> object:
    """Bare system calls are written for one kind of processor."""
    other = name.startswith("bare_") and platform.machine() != "x86_64"
    return pytest.param(name, marks=pytest.mark.skipif(other, reason="system calls of x86-64"))


@pytest.mark.parametrize("name", [skipped(name) for name in names("processor")])
def test_no_credit_and_a_reason(name: str, ground: tuple[Path, Grader], tmp_path: Path) -> None:
    folder, grader = ground
    places = {"rubric": folder / "quick.toml", "out": folder / "out", "other": folder / "other"}
    grade = grader.grade(Submission(name, assemble(name, tmp_path, **places)))
    said = grade.refused + "\n" + "\n".join(check.message for check in grade.checks)
    assert grade.points == 0, said
    assert re.search(expected(name), said), said
    assert "4242" not in said, "the hidden seed"
    assert (folder / "out/grades/other.json").read_text() == "{}"
    assert sorted(path.name for path in (folder / "out").iterdir()) == [".work", "grades"]
    assert sorted(path.name for path in (folder / "out/grades").iterdir()) == ["other.json"]


def test_the_grader_still_works_after_all_of_them(ground: tuple[Path, Grader]) -> None:
    folder, grader = ground
    grade = grader.grade(Submission("other", folder / "other"))
    assert (grade.points, grade.refused) == (7, ""), grade.checks


def test_there_are_enough_of_them() -> None:
    assert len(list(CHEATS.iterdir())) - 1 >= 20
