"""The output formats of ``classify``: batches of answers as text or as columns.

For each class of each picture, the text is only looked up: names of classes are escaped once, and
probabilities are composed from tables of digits. A batch is an array of pieces of text, joined at once.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import not_
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from mini_dnn.errors import UsageError
from mini_dnn.measuring.kept import Answers

COLUMNS = {  # columns of tables, and their types in a Parquet file
    "file": "string",
    "rank": "int32",
    "class": "int32",
    "name": "string",
    "probability": "float64",
    "error": "string",
}
LABEL = {"label": "int32"}  # an additional column if labels are given
DIGITS = 6  # of a probability
GROUP = 5_000  # rows that are written to a columnar table at a time
TOGETHER = 1_000  # pictures that are written at a time, so that memory does not grow with a shard

_to_json = json.JSONEncoder().encode


def _pieces(texts: Iterable[str]) -> np.ndarray:
    return np.array(list(texts), object)


PERCENT = _pieces(f"{n / 1000:.1%}" for n in range(1001))
# A probability is a piece of the first table followed by one of the second. The last 100 pieces are complete.
_FIRST = _pieces([*(repr(n / 1000) for n in range(1001)), *(f"0.{n:03}" for n in range(1000)), ""])
_LAST = _pieces(["", *(f"{n:03}".rstrip("0") for n in range(1, 1000)), *(repr(n / 1e6) for n in range(100))])


class Run(NamedTuple):
    """Consecutive pictures of which either all could be read, or none."""

    names: Sequence[str]
    errors: Sequence[str]  # all empty, or all non-empty
    labels: Sequence[int] | None  # the numbers of the right classes, if known
    classes: np.ndarray  # (n, k), the likeliest first; (0, k) for pictures that could not be read
    probabilities: np.ndarray  # (n, k)


def runs(answers: Answers, labels: Sequence[int] | None) -> Iterator[Run]:
    """Split answers into runs, in order."""
    last = good = 0
    for could_be_read, some in groupby(answers.errors, not_):
        first, last = last, last + sum(1 for _ in some)
        for start in range(first, last, TOGETHER):
            part = slice(start, min(start + TOGETHER, last))
            found = slice(good, good + could_be_read * (part.stop - part.start))
            good = found.stop
            yield Run(
                answers.names[part],
                answers.errors[part],
                None if labels is None else labels[part],
                answers.classes[found],
                answers.probabilities[found],
            )


class People:
    """One line for each picture."""

    def __init__(self, classes: Sequence[str]) -> None:
        self._classes = _pieces(f" {name}, " for name in classes)
        self._last = _pieces(f" {name}\n" for name in classes)

    def text(self, run: Run) -> str:
        """Return the lines of a run."""
        n, k = run.classes.shape
        pieces = np.empty((n, 1 + 2 * k), object)
        pieces[:, 0] = [f"{plain(name)}: " for name in run.names]
        pieces[:, 1::2] = PERCENT[_scaled(run.probabilities, 1000)]
        pieces[:, 2::2] = self._classes[run.classes]
        pieces[:, -1] = self._last[run.classes[:, -1]]
        return _joined(pieces)


class Table:
    """Lines of CSV: one for each class of a picture, or one with the reason why it could not be read."""

    def __init__(self, classes: Sequence[str]) -> None:
        self._classes = _pieces(f"{k},{name}" for k, name in enumerate(_fields(classes)))

    def text(self, run: Run) -> str:
        """Return the lines of a run."""
        if any(run.errors):
            labels = [""] * len(run.names) if run.labels is None else [f",{k}" for k in run.labels]
            fields = zip(_fields(run.names), _fields(run.errors), labels, strict=True)
            return "".join([f"{name},,,,{error[:-1]}{label}\n" for name, error, label in fields])
        n, k = run.classes.shape
        pieces = np.empty((n, k, 6), object)
        pieces[..., 0] = _pieces(_fields(run.names))[:, np.newaxis]
        pieces[..., 1] = _pieces(f"{rank}," for rank in range(1, k + 1))
        pieces[..., 2] = self._classes[run.classes]
        pieces[..., 3], pieces[..., 4] = decimals(run.probabilities)
        pieces[..., 5] = ",\n"
        if run.labels is not None:
            pieces[..., 5] = _pieces(f",,{label}\n" for label in run.labels)[:, np.newaxis]
        return _joined(pieces)


@dataclass
class Objects:
    """JSON objects, with text before and after each."""

    classes: Sequence[str]
    before: str = ""
    after: str = ""

    def __post_init__(self) -> None:
        self._classes = _pieces(
            f'{{"class": {k}, "name": {_to_json(name)}, "probability": '
            for k, name in enumerate(self.classes)
        )

    def text(self, run: Run) -> str:
        """Return the objects of a run."""
        heads = [f'{self.before}{{"file": {_to_json(name)}, ' for name in run.names]
        if run.labels is not None:
            heads = [f'{head}"label": {k}, ' for head, k in zip(heads, run.labels, strict=True)]
        if any(run.errors):
            ends = [f'"error": {_to_json(error)}}}{self.after}' for error in run.errors]
            return "".join([head + end for head, end in zip(heads, ends, strict=True)])
        n, k = run.classes.shape
        pieces = np.empty((n, 1 + 4 * k), object)
        pieces[:, 0] = [f'{head}"classes": [' for head in heads]
        pieces[:, 1::4] = self._classes[run.classes]
        pieces[:, 2::4], pieces[:, 3::4] = decimals(run.probabilities)
        pieces[:, 4::4] = "}, "
        pieces[:, -1] = f"}}]}}{self.after}"
        return _joined(pieces)


class Rows:
    """Rows for a Parquet file, which are written in groups."""

    def __init__(self, file: Path, columns: Mapping[str, str], classes: Sequence[str]) -> None:
        self._arrow, parquet = pyarrow()
        self._schema = self._arrow.schema([(name, getattr(self._arrow, t)()) for name, t in columns.items()])
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._classes = self._arrow.array(classes)
        self._waiting = self._schema.empty_table()

    def add(self, run: Run) -> None:
        """Add pictures. Bytes of a file name that text cannot represent are escaped."""
        n, k = run.classes.shape
        count, ranks = (n * k, k) if n else (len(run.names), 1)
        nothing = [None] * count
        of_picture = np.repeat(np.arange(len(run.names)), ranks)
        names = self._arrow.array([name.encode(errors="backslashreplace").decode() for name in run.names])
        columns = [names.take(self._arrow.array(of_picture)), *[nothing] * 4, nothing]
        if n:
            numbers = self._arrow.array(run.classes.ravel())
            probabilities = np.round(run.probabilities.astype(np.float64), DIGITS).ravel()
            columns[1:5] = [
                np.tile(np.arange(1, k + 1), n),
                numbers,
                self._classes.take(numbers),
                probabilities,
            ]
        else:
            columns[5] = run.errors
        if run.labels is not None:
            columns.append(np.asarray(run.labels)[of_picture])
        self._add(columns)

    def close(self) -> None:
        """Write the remaining rows."""
        self._writer.write_table(self._waiting)
        self._writer.close()

    def _add(self, columns: Sequence[Any]) -> None:
        arrays = [self._arrow.array(c, f.type) for c, f in zip(columns, self._schema, strict=True)]
        some = self._arrow.Table.from_arrays(arrays, schema=self._schema)
        some = self._arrow.concat_tables([self._waiting, some])
        while len(some) >= GROUP:
            self._writer.write_table(some.slice(0, GROUP).combine_chunks())
            some = some.slice(GROUP)
        self._waiting = some.combine_chunks()  # a copy, because a view would keep all of the data


def pyarrow() -> tuple[Any, Any]:
    """Import pyarrow and pyarrow.parquet.

    Raises
    ------
    UsageError
        pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(
            "--parquet needs pyarrow, which is not installed: pip install -e '.[parquet]'; or use --jsonl or "
            "--csv"
        ) from error
    return pyarrow, pyarrow.parquet


def plain(name: str) -> str:
    """A name without control characters, which a terminal would interpret."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in name)


def decimals(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split the texts of probabilities, formatted as by ``repr`` and rounded to `DIGITS`, into two parts."""
    millionths = _scaled(probabilities, 10**DIGITS)
    first, last = np.divmod(millionths, 1000)
    small = millionths < 100  # such as 2e-05
    return _FIRST[np.where(small, -1, first + 1001 * (last > 0))], _LAST[last + 1000 * small]


def _scaled(probabilities: np.ndarray, count: int) -> np.ndarray:
    """Probabilities as multiples of 1 / ``count``, at most ``count``."""
    return np.rint(np.clip(probabilities, 0, 1).astype(np.float64) * count).astype(np.int64)


def _fields(texts: Iterable[str]) -> list[str]:
    """Each text as a field of CSV, followed by a comma."""
    lines: list[str] = []
    append: Callable[[str], None] = lines.append
    csv.writer(SimpleNamespace(write=append), lineterminator="\n").writerows((text, "") for text in texts)
    return [line[:-1] for line in lines]


def _joined(pieces: np.ndarray) -> str:
    return "".join(pieces.ravel().tolist())
