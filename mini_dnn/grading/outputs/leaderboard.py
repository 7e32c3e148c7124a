"""The leaderboard, fastest first.

Each device has its own table, because times of two devices do not compare.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mini_dnn.errors import DataError
from mini_dnn.grading.grades import Grade
from mini_dnn.grading.outputs.text import code_span, one_line
from mini_dnn.paths import write_atomically

DIGITS = 3  # decimals of the milliseconds; times that agree in all of them are a tie


ADJECTIVES = (
    "amber azure bold brave bright calm clever coral crisp eager early fair fast fond free gentle glad "
    "golden grand happy jolly keen kind lively lucky mellow neat noble proud quick quiet silver"
)
ANIMALS = (
    "badger beaver bison crane dingo dolphin eagle falcon ferret finch gecko heron ibex jackal koala lemur "
    "lynx marten moose newt ocelot otter panda puffin rabbit raven robin salmon tapir tiger walrus zebra"
)


@dataclass(frozen=True)
class Row:
    """One place on the leaderboard."""

    rank: int
    name: str
    op_ms: float


@dataclass(frozen=True)
class Board:
    """The leaderboard of one device."""

    rubric: str
    device: str
    rows: tuple[Row, ...]


def boards(grades: Sequence[Grade], names: Mapping[str, str]) -> list[Board]:
    """Return the leaderboards of all rubrics and devices.

    Submissions without an op time are not listed, and neither are those whose credit is refused. Equal times
    share a rank, and the next rank counts all of them: 1, 2, 2, 4.

    Parameters
    ----------
    names
        Names to show instead of submissions' own names.
    """
    kinds = dict.fromkeys((grade.rubric, grade.device) for grade in grades if _listed(grade))
    found = []
    for rubric, device in kinds:
        times = sorted(
            (round(grade.op_ms, DIGITS), one_line(names.get(grade.submission, grade.submission)))
            for grade in grades
            if grade.op_ms is not None and _listed(grade) and (grade.rubric, grade.device) == (rubric, device)
        )
        rows = (Row(1 + sum(other < ms for other, _ in times), name, ms) for ms, name in times)
        found.append(Board(one_line(rubric), one_line(device), tuple(rows)))
    return found


def as_json(found: Sequence[Board]) -> str:
    """Return the leaderboards as JSON."""
    content: dict[str, Any] = {"schema": "leaderboard-1", "boards": [asdict(board) for board in found]}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def as_markdown(found: Sequence[Board]) -> str:
    """Return the leaderboards as Markdown."""
    parts = ["# Leaderboard\n"]
    for board in found:
        parts.append(f"Rubric {code_span(board.rubric)}, on {code_span(board.device)}.\n")
        rows = ["| rank | name | op time, ms |", "| ---: | --- | ---: |"]
        rows += [f"| {row.rank} | {code_span(row.name)} | {row.op_ms:.{DIGITS}f} |" for row in board.rows]
        parts.append("\n".join(rows) + "\n")
    if not found:
        parts.append("There are no op times yet.\n")
    return "\n".join(parts)


def aliases(submissions: Sequence[str], file: Path) -> dict[str, str]:
    """Return a random name for each submission. A file of the staff keeps the names for the next run.

    Raises
    ------
    DataError
        The file contains something else.
    """
    try:
        known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except ValueError as error:
        raise _unreadable(file) from error
    if not isinstance(known, dict) or not all(isinstance(name, str) for name in known.values()):
        raise _unreadable(file)
    for submission in submissions:
        while submission not in known:
            alias = _name()
            if alias not in known.values():
                known[submission] = alias
    write_atomically(file, (json.dumps(known, indent=1) + "\n").encode())
    return known


def _name() -> str:
    """Return a name that is easy to say aloud, one of 90,000."""
    words = (secrets.choice(some.split()) for some in (ADJECTIVES, ANIMALS))
    return f"{'-'.join(words)}-{secrets.randbelow(90) + 10}"


def _listed(grade: Grade) -> bool:
    return grade.op_ms is not None and not grade.refused


def _unreadable(file: Path) -> DataError:
    return DataError(
        f"{file} should contain the names of the leaderboard as JSON: {{submission: name}}. "
        "Correct it, or delete it to give all submissions new names"
    )
