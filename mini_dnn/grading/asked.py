"""The contents of a rubric, as data. ``rubric.py`` reads them from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mini_dnn import ops
from mini_dnn.grading.confined.process import Limits
from mini_dnn.ops import Operation


@dataclass(frozen=True)
class Trials:
    """Problems to try. Each is tried with each seed."""

    problems: tuple[Any, ...]
    seeds: tuple[int, ...]
    # Whether a variant that is right for some of them earns that fraction of the points
    per_shape: bool = False


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
        The names of the problems that are timed.
    batch
        The batch size of each problem; None for each problem's own batch size.
    full, none
        The time that earns all points, and the time that earns none: in milliseconds, or as multiples of
        the reference's time.
    reference
        A variant of this repository, which is measured on the same GPU in the same run; None for absolute
        times.
    """

    problems: Mapping[str, Any]
    batch: int | None
    full: float
    none: float
    reference: str | None = None
    warm_up: int = 5
    repeats: int = 10

    def fraction(self, op_ms: float, reference_ms: float | None = None) -> float:
        """Return the fraction of the points, 0 to 1, that a time earns."""
        scale = 1.0 if self.reference is None else reference_ms
        assert scale is not None, "the reference is measured first"
        return min(1.0, max(0.0, (self.none - op_ms / scale) / (self.none - self.full)))


@dataclass(frozen=True)
class VariantRubric:
    """What a rubric requires of one variant."""

    name: str
    precision: str
    required: bool = True
    host: bool = False
    points: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Log:
    """The work log that a submission contains.

    Parameters
    ----------
    file
        The file name, at the top level of the submission.
    required
        Whether its points count in the maximum. Otherwise they are extra points.
    points
        Points for a log that has an entry for each submitted variant.
    """

    file: str
    required: bool = True
    points: float = 0.0


@dataclass(frozen=True)
class Rubric:
    """What a rubric requires of a submission: see ``rubric.py``."""

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
    text: str = field(default="", repr=False)  # of the rubric's file
    digest: str = ""  # of that text

    @property
    def operation(self) -> Operation:
        """The operation that the rubric is about."""
        return ops.find(self.op)

    def variant(self, name: str) -> VariantRubric:
        """Return what the rubric requires of the variant with this name."""
        return next(v for v in self.variants if v.name == name)
