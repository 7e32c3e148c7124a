"""Rows of results files, each together with its run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from mini_dnn import ops
from mini_dnn.measuring import records
from mini_dnn.measuring.records import Head, Skipped, Sweep

At = int | str  # a table's key: a batch size, or one of the two names below
COURSE = "the course's sizes"  # for problems with different batch sizes
SIZES = "other sizes"  # problems for which the operation has no name


@dataclass(frozen=True, kw_only=True, eq=False)
class Record(Head):
    """One run."""

    file: Path
    schema: int
    verified: bool  # whether the file's checksum was there and right
    skipped: Sequence[Skipped] = ()
    sweeps: Sequence[Sweep] = field(default=())

    @classmethod
    def of(cls, head: Head, **more: Any) -> Record:
        """Return the run that a file's head describes."""
        return cls(**{f.name: getattr(head, f.name) for f in fields(Head)}, **more)


@dataclass(frozen=True, kw_only=True)
class Row(records.Row):
    """One problem of one variant, and the run in which it was measured."""

    record: Record

    @classmethod
    def of(cls, row: records.Row, record: Record) -> Row:
        """Return a row of a file together with its run."""
        return cls(record=record, **{f.name: getattr(row, f.name) for f in fields(records.Row)})

    @property
    def on_host(self) -> bool:
        """Whether the CPU computed it."""
        return self.source_hash is None

    @cached_property
    def sizes(self) -> Any:
        """The problem.

        Raises
        ------
        ShapeError, VariantError
            The problem or the operation no longer exists.
        """
        operation = ops.find(self.op)
        return operation.decode([self.shape[name] for name in operation.fields if name in self.shape])

    @property
    def at(self) -> At:
        """The key of the table that shows the row."""
        return table_of(self.op, self.problem, self.batch)


def table_of(op: str, problem: str, batch: int) -> At:
    """Return the key of the table that shows a problem. Usually it is the batch size."""
    course = ops.find(op).course
    if problem not in course:
        return SIZES
    own = course[problem].batch
    return COURSE if batch == own and len({other.batch for other in course.values()}) > 1 else batch


def course_at(op: str) -> At:
    """Return the key of the table with the course's problems."""
    name, problem = next(iter(ops.find(op).course.items()))
    return table_of(op, name, problem.batch)


def title(at: At) -> str:
    """The title of a table."""
    return f"batch {at:,}" if isinstance(at, int) else at
