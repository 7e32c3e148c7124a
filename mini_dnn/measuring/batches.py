"""A whole network by batch size: the results files of ``benchmarks/resnet_rungs.py`` and similar scripts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from mini_dnn import ops
from mini_dnn.measuring.files import Stored, converted, refuse
from mini_dnn.measuring.records import (
    Count,
    Hash,
    Level,
    Name,
    Place,
    Positive,
    Started,
    Versions,
    Whole,
    check_started,
)
from mini_dnn.measuring.serving_records import MOST_SERVED

SCHEMA = "batches-1"
MOST_TURNS = 1_000
MOST_PROGRAMS = 60  # that fit in a picture

Turns = Annotated[list[Positive], Meta(min_length=1, max_length=MOST_TURNS)]
Roles = Annotated[dict[Name, Whole], Meta(min_length=1, max_length=20)]


@dataclass(frozen=True, kw_only=True)
class BatchesRow:
    """One program at one batch size.

    Parameters
    ----------
    kind
        A variant on the GPU, a library on the same GPU, or a program on the CPU.
    program
        The name of the variant, or the library and its setting.
    problem
        The sizes of the network, without batch size and data type.
    ms
        The times of a batch, in milliseconds, one for each turn.
    max_error, agrees
        The largest difference of a score from float64, and whether all scores are within their bounds; None
        if they were not compared, or if the difference is not a number.
    code_hash
        The hash of the code; None for libraries, on the CPU, and in files that lack it.
    launches, round_trips, copied_bytes
        For a batch: kernels, buffers that are copied to the host and back, and the bytes in both directions.
    memory
        The bytes of the plan's buffers, by role.
    taken_bytes
        How much the free memory of the GPU shrank.
    served_ms
        Including the copies of images and scores, from and to page-locked memory.
    stay_ms
        Without round trips to the host; None if there are none.
    """

    kind: Literal["ours", "library", "host"]
    program: Name
    problem: Name
    batch: Count
    ms: Turns
    max_error: Level | None = None
    agrees: bool | None
    code_hash: Hash | None = None
    launches: Whole | None = None
    round_trips: Whole | None = None
    copied_bytes: Whole | None = None
    memory: Roles | None = None
    taken_bytes: Whole | None = None
    served_ms: Turns | None = None
    stay_ms: Turns | None = None

    @property
    def median_ms(self) -> float:
        """The median time of a batch."""
        return statistics.median(self.ms)

    @property
    def images_per_s(self) -> float:
        """The rate of consecutive batches."""
        return self.batch / self.median_ms * 1e3

    @property
    def with_copies_ms(self) -> float | None:
        """The median time of a batch, from page-locked memory to page-locked memory."""
        return None if self.served_ms is None else statistics.median(self.served_ms)

    @property
    def copies_share(self) -> float | None:
        """The fraction of `with_copies_ms` that is saved if nothing is copied."""
        if self.with_copies_ms is None:
            return None
        return max(0.0, 1 - statistics.median(self.stay_ms or self.ms) / self.with_copies_ms)


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """One kind of launch of a variant at one batch size, timed with consecutive launches of this kind.

    Parameters
    ----------
    variant, problem, batch
        As in `BatchesRow`. Older files have no problem.
    step
        The layer, the kernel and the grid.
    us
        The time of one launch, in microseconds.
    count
        The number of launches of this kind in a pass.
    part
        The part of the network that the launch belongs to; None if its rate is of no interest.
    flops
        The FLOPs of one launch without padding; None if they were not counted.
    """

    variant: Name
    problem: Name | None = None
    batch: Count
    step: Name
    us: Positive
    count: Count
    part: Name | None = None
    flops: Whole | None = None


@dataclass(frozen=True, kw_only=True)
class BatchesFile:
    """The content of such a file."""

    schema: str = SCHEMA
    started: Started | None  # None if the benchmark did not record it
    commit: Name | None
    dirty: bool | None
    device: Place
    versions: Versions
    op: Name
    rows: Annotated[list[BatchesRow], Meta(max_length=MOST_SERVED)]
    steps: Annotated[list[StepRow], Meta(max_length=MOST_SERVED)] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.started is not None:
            check_started(self.started)
        programs = {row.program for row in self.rows}
        if len(programs) > MOST_PROGRAMS:
            raise ValueError(
                f"{len(programs)} programs, but a page can show only {MOST_PROGRAMS}; measure fewer per file"
            )

    @property
    def has_libraries(self) -> bool:
        """Whether it contains libraries."""
        return any(row.kind == "library" for row in self.rows)


Batches = Stored[BatchesFile]


def batches_file(content: Mapping[str, Any], file: Path) -> BatchesFile:
    """Read the content of a file.

    Raises
    ------
    DataError
        A field is missing or of the wrong type, or there is no such operation. The message names file and
        field.
    """
    found = converted(content, BatchesFile, file)
    if found.op not in ops.names():
        refuse(file, f"op: no operation '{found.op}'; expected one of {', '.join(ops.names())}")
    return found
