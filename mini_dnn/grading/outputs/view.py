"""What a student may see of a grade. Files for students are made from this view, never from a `Check`.

Hidden checks appear as one line, ``hidden tests: 3 of 5 passed``. Their names, messages and times are left
out, because a submission that sleeps could reveal a shape by its time. The ``staff`` text of every check is
left out, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mini_dnn.device import NO_GPU
from mini_dnn.grading.grades import FAILED, PASSED, SKIPPED, Check, Grade
from mini_dnn.grading.outputs.text import clean, cut, one_line

HIDDEN = "hidden tests"
ADVICE = "try odd batches and shapes that no tile size divides (run.py check, and infer --check)"
FOLDED = "all checks"
# Characters of a message: the first of these that makes the file small enough is used
CUTS = (20_000, 4_000, 1_000, 200)
DIGITS = 4  # decimals of the points


@dataclass(frozen=True)
class Item:
    """One line of a result: a check, or all hidden checks."""

    name: str
    status: str  # "passed", "failed" or "skipped"
    points: float
    max_points: float
    message: str
    seconds: float


@dataclass(frozen=True)
class View:
    """A result as the student sees it. All text is clean."""

    submission: str
    rubric: str
    device: str
    refused: str
    op_ms: float | None
    seconds: float
    items: tuple[Item, ...]

    @property
    def points(self) -> float:
        """The points earned."""
        return round(sum(item.points for item in self.items), DIGITS)

    @property
    def max_points(self) -> float:
        """The points possible."""
        return round(sum(item.max_points for item in self.items), DIGITS)

    @property
    def passed(self) -> bool:
        """Whether nothing failed, was skipped, or was refused."""
        return not self.refused and all(item.status == PASSED for item in self.items)

    @property
    def fraction(self) -> float:
        """The score from 0 to 1. If there are no points, 1 if it passed and 0 if not."""
        if self.max_points <= 0:
            return float(self.passed)
        return min(1.0, max(0.0, self.points / self.max_points))

    @property
    def summary(self) -> str:
        """The result in a sentence or two."""
        earned = f"{self.points:g} of {self.max_points:g} points."
        return f"No credit: {self.refused}\n{earned}" if self.refused else earned


def view_of(grade: Grade) -> View:
    """Return the student's view of a grade. If credit is refused, no check has points."""
    refused = bool(grade.refused)
    items = [_item(check, refused) for check in grade.public_checks]
    if grade.hidden_checks:
        items.append(_hidden(grade.hidden_checks, refused))
    return View(
        submission=one_line(grade.submission),
        rubric=one_line(grade.rubric),
        device=one_line(grade.device.partition(NO_GPU)[0]),
        refused=clean(grade.refused).strip() or ("refused without a reason" if refused else ""),
        op_ms=grade.op_ms,
        seconds=round(sum(check.seconds for check in grade.public_checks), 3),
        items=tuple(items),
    )


def fitted(view: View, build: Callable[[View], Any], max_bytes: int) -> str:
    """Build JSON from a view in at most ``max_bytes``: messages are shortened, or merged into one."""
    for characters in CUTS:
        text = _json(build(_cut(view, characters)))
        if len(text.encode()) <= max_bytes:
            return text
    return _json(build(_folded(view)))


def _item(check: Check, refused: bool) -> Item:
    return Item(
        name=one_line(check.name),
        status=check.status,
        points=0.0 if refused else round(check.points, DIGITS),
        max_points=round(check.max_points, DIGITS),
        message=clean(check.message).strip(),
        seconds=round(check.seconds, 3),
    )


def _hidden(checks: list[Check], refused: bool) -> Item:
    passed, failed = (sum(check.status == status for check in checks) for status in (PASSED, FAILED))
    notes = [f"{passed} of {len(checks)} passed"]
    notes += [f"{len(checks) - passed - failed} not run"] if passed + failed < len(checks) else []
    return Item(
        name=HIDDEN,
        status=FAILED if failed else PASSED if passed else SKIPPED,
        points=0.0 if refused else round(sum(check.points for check in checks), DIGITS),
        max_points=round(sum(check.max_points for check in checks), DIGITS),
        message=", ".join(notes) + (f"; {ADVICE}" if failed else ""),
        seconds=0.0,  # the time could reveal the problem to a plan
    )


def _cut(view: View, characters: int) -> View:
    items = tuple(replace(item, message=cut(item.message, characters)) for item in view.items)
    return replace(view, refused=cut(view.refused, characters), items=items)


def _folded(view: View) -> View:
    """Return a single item in place of all items."""
    passed = sum(item.status == PASSED for item in view.items)
    item = Item(
        name=FOLDED,
        status=PASSED if passed == len(view.items) else FAILED,
        points=view.points,
        max_points=view.max_points,
        message=f"{passed} of {len(view.items)} passed; too many to list here",
        seconds=view.seconds,
    )
    return replace(_cut(view, min(CUTS)), items=(item,))


def _json(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
