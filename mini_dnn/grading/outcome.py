"""The result of a check, and the texts about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mini_dnn.grading.confined.process import SubmissionError
from mini_dnn.grading.grades import FAILED


class Cheat(SubmissionError):
    """Something that no honest mistake explains. The submission gets no credit at all."""


@dataclass(frozen=True)
class Outcome:
    """The result of a check."""

    status: str
    message: str = ""
    staff: str = ""
    fraction: float = 1.0  # of the points, if the check passed or `partly` is set
    partly: bool = False  # the check failed, but it still earns `fraction` of the points
    ends: bool = False  # the variant gets no credit


def partly(wrong: str, right: int, count: int) -> Outcome:
    """The outcome of a check that failed at some shapes, if the others earn their part of the points."""
    message = f"right at {right} of {count} shapes\n{wrong}"
    return Outcome(FAILED, message, fraction=right / count, partly=True)


def described(finding: Mapping[str, Any], count: int) -> str:
    """Describe a finding of checked mode in a few lines. It is untrusted, so any part may be missing."""
    try:
        where = (finding.get("own") or {}).get("place") or {}
        lines = [f"{finding['kind']}: {finding['what']}"]
        lines += [f"{Path(str(where['file'])).name}:{where['line']} | {where['code']}"] if where else []
        lines += [f"note: {note}" for note in finding.get("notes", [])]
        lines += [f"cure: {finding['cure']}"] if finding.get("cure") else []
    except (KeyError, TypeError, AttributeError, RecursionError):
        lines = ["an unreadable finding"]
    more = f"\n{count - 1} more findings: run.py check shows them" if count > 1 else ""
    return "\n".join(lines)[:4000] + more
