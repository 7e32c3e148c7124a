"""The results of grading, as data: one `Grade` per submission, one `Check` per check.

All output for people and for grading services is made from these, and a stopped run resumes from them.
Therefore, they contain only plain values.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
ISOLATION = "isolation"  # the check that tells staff how a submission was confined; it tests nothing


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Parameters
    ----------
    name
        A short name, unique within its grade: ``"layers/custom: correct"``.
    status
        ``"passed"``, ``"failed"``, or ``"skipped"`` if an earlier failure makes the check pointless.
    points, max_points
        Points earned and possible. A check without points can still rule out credit.
    message
        The text for the student: the failure, the first wrong element, the hint. For a hidden check it names
        no shape, seed or value.
    staff
        Additional text for staff only: shapes, seeds, times.
    hidden
        Whether the details are hidden from the student.
    seconds
        The duration of the check.
    ends
        Whether it ended the variant, so that no check of the variant earns anything.
    """

    name: str
    status: str
    points: float = 0.0
    max_points: float = 0.0
    message: str = ""
    staff: str = ""
    hidden: bool = False
    seconds: float = 0.0
    ends: bool = False


@dataclass(frozen=True)
class Grade:
    """The grade of one submission.

    Parameters
    ----------
    submission
        The name of the submission's folder, which is unique within a grading run.
    rubric
        The name of the rubric.
    device
        A description of the device that was used.
    checks
        The checks in the order in which they ran.
    refused
        Why no credit is given in spite of the points (cheating, a crash), or an empty string.
    op_ms
        The sum of the op times, in milliseconds, of the variant that the rubric ranks by; None if there is
        none.
    started, seconds
        The start of grading (ISO 8601, UTC), and its duration.
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
        """The checks whose details the student sees."""
        return [check for check in self.checks if not check.hidden]

    @property
    def hidden_checks(self) -> list[Check]:
        """The checks of which the student only learns how many passed."""
        return [check for check in self.checks if check.hidden and check.name != ISOLATION]

    @property
    def points(self) -> float:
        """The points earned: 0 if credit is refused."""
        return 0.0 if self.refused else sum(check.points for check in self.checks)

    @property
    def max_points(self) -> float:
        """The points possible."""
        return sum(check.max_points for check in self.checks)

    def to_json(self) -> str:
        """Return the grade as text for a file. `from_json` reads it."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Grade:
        """Read a grade from the text of its file.

        Raises
        ------
        ValueError, KeyError, TypeError
            The text is not a grade.
        """
        fields: dict[str, Any] = json.loads(text)
        return cls(**(fields | {"checks": tuple(Check(**check) for check in fields["checks"])}))
