"""Rows of results files, each with the run that it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from mini_dnn import ops
from mini_dnn.measuring import records
from mini_dnn.measuring.records import Head, Skipped, Sweep

At = int | str  # which rows stand in one table: those of a batch, or one of the two that follow
COURSE = "the course's sizes"  # where the batches of its problems differ
SIZES = "other sizes"  # problems that the operation has no name for


@dataclass(frozen=True, kw_only=True, eq=False)
class Record(Head):
    """One run."""

    file: Path
    schema: int
    verified: bool  # by the file's checksum
    skipped: Sequence[Skipped] = ()
    sweeps: Sequence[Sweep] = field(default=())

    @classmethod
    def of(cls, head: Head, **more: Any) -> Record:
        """The run that a file's head describes."""
        return cls(**{f.name: getattr(head, f.name) for f in fields(Head)}, **more)


@dataclass(frozen=True, kw_only=True)
class Row(records.Row):
    """One problem of one variant, and the run in which it was measured."""

    record: Record

    @classmethod
    def of(cls, row: records.Row, record: Record) -> Row:
        """The row of a file."""
        return cls(record=record, **{f.name: getattr(row, f.name) for f in fields(records.Row)})

    @property
    def on_host(self) -> bool:
        """Whether the CPU computed it."""
        return self.source_hash is None

    @cached_property
    def sizes(self) -> Any:
        """The problem itself.

        Raises
        ------
        ShapeError, VariantError
            There is no such one, or no such operation, any more.
        """
        operation = ops.find(self.op)
        return operation.decode([self.shape[name] for name in operation.fields if name in self.shape])

    @property
    def at(self) -> At:
        """In which table it stands."""
        return table_of(self.op, self.problem, self.batch)


def table_of(op: str, problem: str, batch: int) -> At:
    """In which table a problem stands: that of its batch, as a rule."""
    course = ops.find(op).course
    if problem not in course:
        return SIZES
    own = course[problem].batch
    return COURSE if batch == own and len({other.batch for other in course.values()}) > 1 else batch


def course_at(op: str) -> At:
    """In which table the operation's problems stand as the course has them."""
    name, problem = next(iter(ops.find(op).course.items()))
    return table_of(op, name, problem.batch)


def title(at: At) -> str:
    """The table's name."""
    return f"batch {at:,}" if isinstance(at, int) else at
