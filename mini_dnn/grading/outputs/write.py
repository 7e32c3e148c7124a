"""Write all results of a grading run, for people and for grading services."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from mini_dnn.errors import DataError, MiniDnnError
from mini_dnn.grading.grades import Grade
from mini_dnn.grading.outputs import leaderboard, staff
from mini_dnn.grading.outputs.github_classroom import github_classroom
from mini_dnn.grading.outputs.gradescope import gradescope
from mini_dnn.grading.outputs.page import page
from mini_dnn.grading.outputs.prairielearn import prairielearn
from mini_dnn.grading.outputs.similarity import similarity, similarity_csv
from mini_dnn.grading.outputs.summary import summary
from mini_dnn.grading.outputs.view import View, view_of
from mini_dnn.grading.similarity import Likeness
from mini_dnn.paths import write_atomically

FORMATS: dict[str, Callable[[View], str]] = {
    "gradescope.json": gradescope,
    "prairielearn.json": prairielearn,
    "github-classroom.env": github_classroom,
}


def write_all(
    grades: Sequence[Grade], folder: Path, anonymous: bool = True, pairs: Sequence[Likeness] | None = None
) -> None:
    """Write the results of a grading run.

    ========================================  ==========================================================
    ``students/NAME/result.md``               the page for the student
    ``students/NAME/gradescope.json``         ``results.json`` of Gradescope
    ``students/NAME/prairielearn.json``       ``results.json`` of PrairieLearn
    ``students/NAME/github-classroom.env``    the variable for GitHub Classroom's reporter
    ``staff/grades.csv``, ``checks.csv``      one row per submission, one row per check
    ``staff/summary.md``                      the results of the class, and the most frequent failures
    ``staff/similarity.md``, ``.csv``         similar submissions; removed if they were not compared
    ``staff/aliases.json``                    the names behind an anonymous leaderboard
    ``leaderboard.md``, ``leaderboard.json``  the leaderboard, fastest first
    ========================================  ==========================================================

    ``students/`` and the leaderboard can be given to students, but ``staff/`` cannot.

    Parameters
    ----------
    grades
        At most one grade per submission.
    folder
        Created if necessary. Files of an earlier run are replaced atomically.
    anonymous
        Whether the leaderboard shows random names instead of the submissions' names.
    pairs
        Similar submissions; None if they were not compared.

    Raises
    ------
    DataError
        A submission's name is not a valid folder name or occurs twice, or ``aliases.json`` is damaged.
    MiniDnnError
        A file cannot be written.
    """
    submissions = [grade.submission for grade in grades]
    for name in submissions:
        _check_name(name, submissions)
    try:
        aliases = leaderboard.aliases(submissions, folder / "staff" / "aliases.json") if anonymous else {}
        boards = leaderboard.boards(grades, aliases)
        for grade in grades:
            view = view_of(grade)
            listed = grade.op_ms is not None and not grade.refused
            alias = aliases.get(grade.submission, "") if listed else ""
            files = {"result.md": page(view, alias)}
            files |= {name: content(view) for name, content in FORMATS.items()}
            for name, text in files.items():
                _write(folder / "students" / grade.submission / name, text)
        _write(folder / "staff" / "grades.csv", staff.grades_csv(grades))
        _write(folder / "staff" / "checks.csv", staff.checks_csv(grades))
        _write(folder / "staff" / "summary.md", summary(grades))
        for name, format_ in (("similarity.md", similarity), ("similarity.csv", similarity_csv)):
            if pairs is None:
                (folder / "staff" / name).unlink(missing_ok=True)  # it would be about earlier submissions
            else:
                _write(folder / "staff" / name, format_(pairs))
        _write(folder / "leaderboard.md", leaderboard.as_markdown(boards))
        _write(folder / "leaderboard.json", leaderboard.as_json(boards))
    except OSError as error:
        raise MiniDnnError(
            f"results cannot be written to {folder}: {error}. No grade is lost: free some space there, "
            "and run the same command again"
        ) from error


def _check_name(name: str, submissions: Sequence[str]) -> None:
    if name in ("", ".", "..") or "/" in name or "\0" in name or not _encodable(name):
        raise DataError(
            f"a grade is for the submission {name!r}, which is not the name of a folder: the file may "
            f"have been edited"
        )
    if submissions.count(name) > 1:
        raise DataError(f"two grades are for {name!r}, but names must be distinct: rename one submission")


def _encodable(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def _write(path: Path, text: str) -> None:
    write_atomically(path, text.encode())
