"""The fields of results files: types and ranges, declared once for writers and readers.

Further fields of a file are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Annotated, Any, Literal

from msgspec import Meta

from mini_dnn.ops.compare import PRECISIONS
from mini_dnn.running.timing import Timing

# Schemas of the files of ``bench``. Schema 2: layer_ms excludes the fill with NaN, rows have a code_hash, and
# their state is read throughout the measurement. Schema 3: rows name their operation and problem, and say
# whether op times had settled. Schema 4: files have a checksum.
SCHEMA = 4
SCHEMAS = (1, 2, 3, SCHEMA)  # schemas that can be read
OLD_SCHEMAS = (1, 2)  # in these, rows have a layer in place of operation and problem

MOST_ROWS = 20_000
MOST_SWEEPS = 200  # each is a plot
MOST_SPANS = 10_000
WRITTEN = datetime(2026, 11, 22, tzinfo=UTC)  # of this module: a clock with an earlier time is wrong
TOLERANCE = timedelta(days=1)  # between two clocks

_LARGE = 1e15
# Control characters, and characters that change the direction of text
_UNSEEN = r"\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069"
Positive = Annotated[float, Meta(gt=0, le=_LARGE)]
Level = Annotated[float, Meta(ge=0, le=_LARGE)]  # 0 is allowed
Fraction = Annotated[float, Meta(ge=0, le=1)]
Finite = Annotated[float, Meta(ge=-_LARGE, le=_LARGE)]
Count = Annotated[int, Meta(gt=0, le=2**62)]
Whole = Annotated[int, Meta(ge=0, le=2**62)]
Name = Annotated[str, Meta(min_length=1, max_length=300, pattern=rf"\A[^{_UNSEEN}]*\Z")]
Words = Annotated[str, Meta(max_length=10_000, pattern=r"\A[^\x00-\x08\x0b-\x1f\x7f-\x9f]*\Z")]
Hash = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Precision = Annotated[str, Meta(pattern=rf"\A(?:{'|'.join(PRECISIONS)})\Z")]
Started = Annotated[
    str, Meta(pattern=r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?\+00:00\Z")
]  # ISO 8601, UTC
Versions = Annotated[dict[Name, Words], Meta(max_length=200)]  # by name of the program
Quartiles = Annotated[list[Positive], Meta(min_length=3, max_length=3)]
ROUNDED = 1e-9  # relative difference that a median may have if it was computed in another way


def check_started(text: str) -> None:
    """Raise an error for a time that cannot be that of a measurement.

    Raises
    ------
    ValueError
        There is no such day or hour, or it is in the future.
    """
    started = datetime.fromisoformat(text)
    if started > max(datetime.now(UTC), WRITTEN) + TOLERANCE:
        raise ValueError(f"started {text} is in the future")


def check_order(values: Sequence[float | None], what: str) -> None:
    """Raise an error for values that decrease. None among them is ignored.

    Raises
    ------
    ValueError
        The values decrease.
    """
    known = [value for value in values if value is not None]
    if any(one > next_one for one, next_one in pairwise(known)):
        raise ValueError(f"{what} are not in increasing order: {', '.join(f'{value:g}' for value in known)}")


def check_quartiles(op_ms: float | None, quartiles: Sequence[float] | None) -> None:
    """Raise an error for quartiles that decrease, and for a median that is not between them.

    Raises
    ------
    ValueError
        The quartiles decrease, or the median is not between them.
    """
    if not quartiles:
        return
    check_order(quartiles, "op_ms_quartiles")
    first, _, third = quartiles
    if op_ms is not None and not first * (1 - ROUNDED) <= op_ms <= third * (1 + ROUNDED):
        raise ValueError(
            f"op_ms is {op_ms:g}, which is not between its quartiles, {first:g} and {third:g}; "
            "expected the median of the same samples"
        )


@dataclass(frozen=True, kw_only=True)
class State:
    """The readings of a GPU's sensors: see `mini_dnn.measuring.nvml.summary`."""

    driver: Name
    sm_mhz: Whole
    memory_mhz: Whole
    temperature_c: Annotated[int, Meta(ge=-100, le=1000)]
    power_w: Level
    throttle_reasons: Annotated[str, Meta(pattern=r"\A0x[0-9a-fA-F]{1,16}\Z")]
    readings: Whole | None = None  # None in the oldest files


@dataclass(frozen=True, kw_only=True)
class Place:
    """The device of a measurement."""

    name: Name  # of the device, in words
    cpu: Words
    state: State | None  # of the GPU before the run


@dataclass(frozen=True, kw_only=True)
class Head:
    """The fields that all figures of a file share."""

    started: Started
    commit: Name | None
    dirty: bool | None
    device: Place
    data: Name  # the name of a data set, or "random"
    versions: Versions
    method: Timing
    # of the device: copy_gbps, fp32_tflops and so on
    memory: Annotated[dict[Name, Positive], Meta(max_length=200)] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_started(self.started)


@dataclass(frozen=True, kw_only=True)
class Span:
    """When one step of a plan ran on the device."""

    kind: Literal["copy_in", "kernel", "copy_out"]
    label: Name
    stream: Whole
    start_ms: Level
    end_ms: Level

    def __post_init__(self) -> None:
        check_order((self.start_ms, self.end_ms), "start_ms and end_ms")


@dataclass(frozen=True, kw_only=True)
class Streams:
    """How copies and kernels overlapped."""

    hidden_fraction: Fraction
    spans: Annotated[list[Span], Meta(max_length=MOST_SPANS)]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One problem of one variant."""

    op: Name
    problem: Name
    shape: Annotated[dict[Name, Any], Meta(max_length=100)]  # the problem's fields
    batch: Count
    variant: Name
    parent: Name | None
    precision: Precision
    source_hash: Hash | None  # of the kernel's files; None for a variant on the host
    code_hash: Hash | None  # of the code of the kernel and variant.py; None also in older files
    flops: Whole
    min_bytes: Count
    op_ms: Positive | None
    op_ms_min: Positive | None = None
    op_ms_max: Positive | None = None
    op_ms_quartiles: Quartiles | None = None
    median_error: Level | None  # half of the 95 % confidence interval, as a fraction
    settled: bool | None = None  # whether op times had settled before timing began; None if unknown
    repeats: Whole
    parts: Count
    layer_ms: Level | None  # None if only the op was measured
    compile_ms: Level | None = None
    max_error: Level  # against float64
    error_of_bound: Level | None = None
    accuracy: Fraction | None = None  # of the network in which it was measured
    state: State | None  # of the GPU, the worst during the measurement; schema 1: directly after it
    host: Annotated[dict[Name, Level], Meta(max_length=100)] | None = (
        None  # how busy it was, where it computes
    )
    streams: Streams | None = None

    def __post_init__(self) -> None:
        check_order((self.op_ms_min, self.op_ms, self.op_ms_max), "op_ms_min, op_ms and op_ms_max")
        check_quartiles(self.op_ms, self.op_ms_quartiles)


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A problem that a variant does not accept."""

    op: Name
    problem: Name
    variant: Name
    reason: Words


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Op times of a variant over two of its parameters."""

    op: Name
    problem: Name
    variant: Name
    batch: Count
    x_name: Name
    x_values: Annotated[list[Whole], Meta(max_length=100)]
    y_name: Name
    y_values: Annotated[list[Whole], Meta(max_length=100)]
    op_ms: list[list[Positive | None]]  # a list for each value of y
    best: tuple[Whole, Whole]  # x and y that the variant uses

    def __post_init__(self) -> None:
        if [len(line) for line in self.op_ms] != [len(self.x_values)] * len(self.y_values):
            raise ValueError("op_ms does not have the lengths of x_values and y_values")
        if all(value is None for line in self.op_ms for value in line):
            raise ValueError("op_ms holds no time")


@dataclass(frozen=True, kw_only=True)
class BenchFile(Head):
    """A file of ``bench``."""

    schema: int = SCHEMA
    rows: Annotated[list[Row], Meta(max_length=MOST_ROWS)]
    skipped: Annotated[list[Skipped], Meta(max_length=MOST_ROWS)] = field(default_factory=list)
    sweeps: Annotated[list[Sweep], Meta(max_length=MOST_SWEEPS)] = field(default_factory=list)
