"""Tables for the staff: a row a submission, and a row a check with everything that was found."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from mini_dnn.device import NO_GPU
from mini_dnn.grading.grades import FAILED, PASSED, Check, Grade
from mini_dnn.grading.outputs.text import clean, one_line

GRADES = (
    "submission",
    "rubric",
    "points",
    "max_points",
    "refused",
    "failed",
    "why",
    "public_passed",
    "hidden_passed",
    "op_ms",
    "device",
    "started",
    "seconds",
)
CHECKS = (
    "submission",
    "check",
    "hidden",
    "status",
    "points",
    "max_points",
    "seconds",
    "message",
    "staff",
)
FORMULA = ("=", "+", "-", "@", "\t")  # a spreadsheet takes text that starts so for a formula

WHY_CHARACTERS = 300  # of what a check says; checks.csv has all

Cell = str | float | None


def grades_csv(grades: Sequence[Grade]) -> str:
    """One row a submission."""
    return csv_of(GRADES, (_grade_row(grade) for grade in grades))


def checks_csv(grades: Sequence[Grade]) -> str:
    """One row a check, hidden ones too, with the staff's texts."""
    return csv_of(CHECKS, (_check_row(grade, check) for grade in grades for check in grade.checks))


def _grade_row(grade: Grade) -> list[Cell]:
    failed = [check for check in grade.checks if check.status == FAILED]
    return [
        one_line(grade.submission),
        one_line(grade.rubric),
        round(grade.points, 4),
        round(grade.max_points, 4),
        clean(grade.refused),
        clean("; ".join(check.name for check in failed)),
        _why(failed[0]) if failed else "",
        _passed(grade.public_checks),
        _passed(grade.hidden_checks),
        None if grade.op_ms is None else round(grade.op_ms, 4),
        one_line(grade.device.partition(NO_GPU)[0]),
        one_line(grade.started),
        round(grade.seconds, 3),
    ]


def _check_row(grade: Grade, check: Check) -> list[Cell]:
    return [
        one_line(grade.submission),
        one_line(check.name),
        "yes" if check.hidden else "no",
        check.status,
        0.0 if grade.refused else round(check.points, 4),
        round(check.max_points, 4),
        round(check.seconds, 3),
        clean(check.message),
        clean(check.staff),
    ]


def _why(check: Check) -> str:
    """What a check says, in a line; of one that is not shown, what it says to the staff."""
    text = check.staff if check.hidden and check.staff else check.message
    return one_line(text, WHY_CHARACTERS) if text else ""


def _passed(checks: Iterable[Check]) -> str:
    found = [check.status == PASSED for check in checks]
    return f"{sum(found)} of {len(found)}"


def csv_of(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A table that a spreadsheet reads and runs nothing of."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return file.getvalue()


def _cell(value: Cell) -> Cell:
    """The value; text that a spreadsheet would run gets an apostrophe in front."""
    return "'" + value if isinstance(value, str) and value.startswith(FORMULA) else value
