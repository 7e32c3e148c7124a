"""The cost of serving, from the results of ``run.py bench --latency --growth --throughput``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mini_dnn.measuring.files import Stored
from mini_dnn.measuring.serving_records import Growth, ServingFile

KEYS = {  # rows that agree in these fields measure the same thing
    "latency": ("variant", "send", "graph"),
    "growth": ("variant", "op", "problem", "batch"),
    "throughput": ("variant", "send", "batch"),
}
LINEAR = 1_000  # from this batch size on, an op time should grow linearly


Serving = Stored[ServingFile]


@dataclass(frozen=True)
class Line:
    """A straight line through op times: a fixed cost of each op, and a cost of each entry."""

    op_ms: float
    entry_ms: float
    deviation: float  # the largest deviation, as a fraction of the op time

    def at(self, batch: np.ndarray) -> np.ndarray:
        """Return the op time in milliseconds at these batch sizes."""
        return self.op_ms + self.entry_ms * batch


@dataclass(frozen=True)
class Curve:
    """The op times of one variant at one problem, smallest batch size first."""

    variant: str
    problem: str
    batches: np.ndarray
    op_ms: np.ndarray

    @property
    def line(self) -> Line | None:
        """The line from batch `LINEAR` on, or None for fewer than three points.

        Two points always lie on a line. The fit minimises relative errors. With absolute errors, the largest
        batch alone would decide.
        """
        n, ms = self.batches[self.batches >= LINEAR], self.op_ms[self.batches >= LINEAR]
        if len(n) < 3:
            return None
        (op_ms, entry_ms), *_ = np.linalg.lstsq(np.stack([1 / ms, n / ms], 1), np.ones(len(n)), rcond=None)
        deviation = np.abs((op_ms + entry_ms * n) / ms - 1).max()
        return Line(float(op_ms), float(entry_ms), float(deviation))


def latest(servings: Iterable[Serving], kind: str) -> list[Any]:
    """Return the rows of a kind of `KEYS`. Of rows of the same thing, the last one counts."""
    rows = (row for serving in servings for row in getattr(serving.content, kind))
    return list({tuple(getattr(row, name) for name in KEYS[kind]): row for row in rows}.values())


def curves(rows: Iterable[Growth]) -> list[Curve]:
    """Return the rows that have an op time, grouped into curves."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        if row.op_ms is not None:
            found.setdefault((row.variant, row.op, row.problem), {})[row.batch] = row.op_ms
    return [
        Curve(variant, problem, np.array(sorted(times)), np.array([times[n] for n in sorted(times)]))
        for (variant, _, problem), times in found.items()
    ]
