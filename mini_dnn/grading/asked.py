"""What a rubric asks of a submission, as data; ``rubric.py`` reads it from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mini_dnn import ops
from mini_dnn.grading.confined.process import Limits
from mini_dnn.ops import Operation


@dataclass(frozen=True)
class Trials:
    """Problems to try, each with each seed."""

    problems: tuple[Any, ...]
    seeds: tuple[int, ...]
    per_shape: bool = False  # whether a variant that is right at some of them earns that part of the points


@dataclass(frozen=True)
class Accuracy:
    """The network's accuracy on its first ``batch`` test images, compared with NumPy's."""

    batch: int
    tolerance: float = 0.001


@dataclass(frozen=True)
class Performance:
    """Points for the sum of op times.

    Parameters
    ----------
    problems
        What is timed, by name.
    batch
        Entries of the batch of each; None: as many as each has by itself.
    full, none
        Time that earns all, and none: milliseconds, or multiples of the reference's time.
    reference
        A variant of this repository, measured on the same GPU in the same run; None: absolute times.
    """

    problems: Mapping[str, Any]
    batch: int | None
    full: float
    none: float
    reference: str | None = None
    warm_up: int = 5
    repeats: int = 10

    def fraction(self, op_ms: float, reference_ms: float | None = None) -> float:
        """Part of the points that a time earns: 0 to 1."""
        scale = 1.0 if self.reference is None else reference_ms
        assert scale is not None, "the reference is measured first"
        return min(1.0, max(0.0, (self.none - op_ms / scale) / (self.none - self.full)))


@dataclass(frozen=True)
class VariantRubric:
    """What is asked of one variant."""

    name: str
    precision: str
    required: bool = True
    host: bool = False
    points: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Log:
    """The work log that is handed in.

    Parameters
    ----------
    file
        Its name, at the top of the submission.
    required
        Whether its points are part of the maximum; otherwise they are extra.
    points
        For a log with an entry for each variant that is handed in.
    """

    file: str
    required: bool = True
    points: float = 0.0


@dataclass(frozen=True)
class Rubric:
    """What is asked of a submission: see ``rubric.py``."""

    name: str
    variants: tuple[VariantRubric, ...]
    correct: Trials
    single: str
    ranking: str
    limits: Limits = field(default_factory=Limits)
    hidden: Trials | None = None
    accuracy: Accuracy | None = None
    checked: Trials | None = None
    hidden_checked: Trials | None = None
    performance: Performance | None = None
    log: Log | None = None
    op: str = ops.DEFAULT
    text: str = field(default="", repr=False)  # of the file
    digest: str = ""  # of that text

    @property
    def operation(self) -> Operation:
        """What is to be computed."""
        return ops.find(self.op)

    def variant(self, name: str) -> VariantRubric:
        """What is asked of the variant of that name."""
        return next(v for v in self.variants if v.name == name)
