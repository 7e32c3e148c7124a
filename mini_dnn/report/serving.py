"""What serving costs, as ``run.py bench --latency --growth --throughput`` writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from mini_dnn.measuring.serving import SCHEMA
from mini_dnn.report.fields import NUMBER, Fields, check

FILE: Fields = {
    "started": (str,),
    "commit": (str, NoneType),
    "dirty": (bool, NoneType),
    "device": (dict,),
    "data": (str,),
    "method": (dict,),
    "memory": (dict,),
    "latency": (list,),
    "growth": (list,),
    "throughput": (list,),
}
ANY_ROW: Fields = {
    "variant": (str,),
    "code_hash": (str, NoneType),
    "op_ms": (*NUMBER, NoneType),
    "max_error": NUMBER,
    "state": (dict, NoneType),
}
TIMES = ("p50_us", "p90_us", "p99_us", "max_us")
RATES = ("images_per_s", "batch_ms", "copy_ms", "over_longer")
ROWS: Mapping[str, Fields] = {
    "latency": {"send": (str,), "graph": (bool,), "requests": (int,), **dict.fromkeys(TIMES, NUMBER)},
    "growth": {
        "layer": (str,),
        "batch": (int,),
        "parts": (int,),
        "flops": (int,),
        "repeats": (int,),
        "median_error": (*NUMBER, NoneType),
    },
    "throughput": {"send": (str,), "batch": (int,), "batches": (int,), **dict.fromkeys(RATES, NUMBER)},
}
KEYS: Mapping[str, Sequence[str]] = {
    "latency": ("variant", "send", "graph"),
    "growth": ("variant", "layer", "batch"),
    "throughput": ("variant", "send", "batch"),
}
LINEAR = 1_000  # from this batch on an op time is to grow along a straight line

__all__ = ["LINEAR", "SCHEMA", "Growth", "Line", "Serving", "growths", "latest", "read"]

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Serving:
    """One run of that kind of ``bench``."""

    device: str
    file: Path
    commit: str | None
    dirty: bool | None
    rows: Mapping[str, Sequence[Row]]  # by kind: see `ROWS`


@dataclass(frozen=True)
class Line:
    """A straight line through op times: a cost that each op has, and one that each image has."""

    op_ms: float
    image_ms: float
    deviation: float  # the largest, as a fraction of the op time

    def at(self, batch: np.ndarray) -> np.ndarray:
        """Milliseconds of ops of so many images."""
        return self.op_ms + self.image_ms * batch


@dataclass(frozen=True)
class Growth:
    """The op times of one variant on one layer or network, smallest batch first."""

    variant: str
    layer: str
    batches: np.ndarray
    op_ms: np.ndarray

    @property
    def line(self) -> Line | None:
        """The line from batch `LINEAR` up; None below three points, as it goes through any two.

        Relative errors are the least squares: absolute ones would let the largest batch decide alone.
        """
        n, ms = self.batches[self.batches >= LINEAR], self.op_ms[self.batches >= LINEAR]
        if len(n) < 3:
            return None
        (op_ms, image_ms), *_ = np.linalg.lstsq(np.stack([1 / ms, n / ms], 1), np.ones(len(n)), rcond=None)
        deviation = np.abs((op_ms + image_ms * n) / ms - 1).max()
        return Line(float(op_ms), float(image_ms), float(deviation))


def read(content: Any, file: Path) -> tuple[str, Serving]:
    """When it was started, and what was found.

    Raises
    ------
    DataError
        A field is missing or of the wrong kind; names file and field.
    """
    check(content, FILE, file, "")
    check(content["device"], {"name": (str,)}, file, "device.")
    positive = ("batch", "requests", "op_ms", *TIMES, *RATES)
    for kind, fields in ROWS.items():
        for at, row in enumerate(content[kind]):
            check(row, {**ANY_ROW, **fields}, file, f"{kind}[{at}].", positive)
            if row["state"] is not None:
                check(row["state"], {"sm_mhz": (int,)}, file, f"{kind}[{at}].state.")
    rows = {kind: content[kind] for kind in ROWS}
    return content["started"], Serving(
        content["device"]["name"], file, content["commit"], content["dirty"], rows
    )


def latest(servings: Iterable[Serving], kind: str) -> list[Row]:
    """The rows of a kind; of those of the same variant, layer, batch and so on the last."""
    rows = (row for serving in servings for row in serving.rows[kind])
    return list({tuple(row[name] for name in KEYS[kind]): row for row in rows}.values())


def growths(rows: Iterable[Row]) -> list[Growth]:
    """The rows with an op time, put together."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        if row["op_ms"] is not None:
            found.setdefault((row["variant"], row["layer"]), {})[row["batch"]] = row["op_ms"]
    return [
        Growth(*key, np.array(sorted(times)), np.array([times[batch] for batch in sorted(times)]))
        for key, times in found.items()
    ]
