"""What grading finds, as data: one `Grade` a submission, one `Check` a thing that was looked at.

Everything that is shown or handed to a grading service is made from these, and a stopped run resumes from
them; so they hold plain values only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
ISOLATION = "isolation"  # the check that tells the staff how a submission was confined; no test of it


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Parameters
    ----------
    name
        Short and unique in its grade: ``"layers/custom: correct"``.
    status
        ``"passed"``, ``"failed"``, or ``"skipped"`` when an earlier failure makes it pointless.
    points, max_points
        Earned, and possible; a check may be worth nothing and still forbid credit.
    message
        What the student reads: the failure, the first wrong element, the hint. For a hidden check it names
        neither shape nor seed nor value.
    staff
        What only staff read beside it: shapes, seeds, times.
    hidden
        Its details are not for the student.
    seconds
        How long the check took.
    """

    name: str
    status: str
    points: float = 0.0
    max_points: float = 0.0
    message: str = ""
    staff: str = ""
    hidden: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Grade:
    """What one submission earned.

    Parameters
    ----------
    submission
        Its name: that of its folder, unique in a grading run.
    rubric
        Name of the rubric.
    device
        Description of the device that it ran on.
    checks
        In the order in which they were made.
    refused
        Why no credit is given in spite of the points (a cheat, a crash); empty otherwise.
    op_ms
        The op-time sum of the variant that the rubric ranks by, in milliseconds; None if there is none.
    started, seconds
        When grading began (ISO 8601, UTC), and how long it took.
    """

    submission: str
    rubric: str
    device: str
    checks: tuple[Check, ...]
    refused: str = ""
    op_ms: float | None = None
    started: str = ""
    seconds: float = 0.0

    @property
    def public_checks(self) -> list[Check]:
        """Those whose details the student sees."""
        return [check for check in self.checks if not check.hidden]

    @property
    def hidden_checks(self) -> list[Check]:
        """Those of which the student learns how many passed."""
        return [check for check in self.checks if check.hidden and check.name != ISOLATION]

    @property
    def points(self) -> float:
        """Points earned: none if credit is refused."""
        return 0.0 if self.refused else sum(check.points for check in self.checks)

    @property
    def max_points(self) -> float:
        """Points possible."""
        return sum(check.max_points for check in self.checks)

    def to_json(self) -> str:
        """For a file; `from_json` reads it back."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Grade:
        """A grade from its file.

        Raises
        ------
        ValueError, KeyError, TypeError
            The text is no grade.
        """
        fields: dict[str, Any] = json.loads(text)
        return cls(**(fields | {"checks": tuple(Check(**check) for check in fields["checks"])}))
