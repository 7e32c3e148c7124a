"""Tables for staff: one row per submission, and one row per check with all details."""

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
CHECKS = ("submission", "check", "hidden", "status", "points", "max_points", "seconds", "message", "staff")
FORMULA = ("=", "+", "-", "@", "\t")  # spreadsheets treat text that starts with one of these as a formula

WHY_CHARACTERS = 300  # of a check's message; checks.csv has the whole message

Cell = str | float | None


def grades_csv(grades: Sequence[Grade]) -> str:
    """Return a table with one row per submission."""
    return csv_of(GRADES, (_grade_row(grade) for grade in grades))


def checks_csv(grades: Sequence[Grade]) -> str:
    """Return a table with one row per check, including hidden ones, with the staff texts."""
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
    """The message of a check on one line. For a hidden check, it is the message for staff."""
    text = check.staff if check.hidden and check.staff else check.message
    return one_line(text, WHY_CHARACTERS) if text else ""


def _passed(checks: Iterable[Check]) -> str:
    found = [check.status == PASSED for check in checks]
    return f"{sum(found)} of {len(found)}"


def csv_of(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Return a table in which spreadsheets find nothing to run."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return file.getvalue()


def _cell(value: Cell) -> Cell:
    """Return the value. Text that a spreadsheet would run gets an apostrophe in front."""
    return "'" + value if isinstance(value, str) and value.startswith(FORMULA) else value
