"""The fields of files of ``bench --latency --growth --throughput``; see `records`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from mini_dnn.measuring.records import (
    Count,
    Fraction,
    Hash,
    Head,
    Level,
    Name,
    Positive,
    Quartiles,
    State,
    Whole,
    check_order,
    check_quartiles,
)

SERVING = "serving-3"  # 3 adds a checksum
SERVING_SCHEMAS = ("serving-2", SERVING)
MOST_SERVED = 2_000  # rows of each kind of serving


@dataclass(frozen=True, kw_only=True)
class OpTime:
    """An op time of a variant's code with its spread, which every row of serving has."""

    variant: Name
    code_hash: Hash | None
    op_ms: Positive | None
    op_ms_quartiles: Quartiles | None = None
    median_error: Level | None
    settled: bool | None = None
    repeats: Whole
    max_error: Level
    state: State | None

    def __post_init__(self) -> None:
        check_quartiles(self.op_ms, self.op_ms_quartiles)


@dataclass(frozen=True, kw_only=True)
class Latency(OpTime):
    """Requests of one entry each."""

    send: Name
    graph: bool
    requests: Count
    p50_us: Positive
    p90_us: Positive
    p99_us: Positive
    max_us: Positive

    def __post_init__(self) -> None:
        super().__post_init__()
        check_order((self.p50_us, self.p90_us, self.p99_us, self.max_us), "p50_us, p90_us, p99_us and max_us")


@dataclass(frozen=True, kw_only=True)
class Growth(OpTime):
    """One batch size of a problem."""

    op: Name
    problem: Name
    batch: Count
    parts: Count
    flops: Whole


@dataclass(frozen=True, kw_only=True)
class Throughput(OpTime):
    """Consecutive batches."""

    send: Name
    batch: Count
    batches: Count
    image_bytes: Count | None = None
    images_per_s: Positive
    batch_ms: Positive
    batch_ms_of_passes: Annotated[list[Positive], Meta(max_length=1000)] | None = None
    copy_ms: Positive
    over_longer: Positive
    accuracy: Fraction | None = None


@dataclass(frozen=True, kw_only=True)
class ServingFile(Head):
    """A file of ``bench --latency --growth --throughput``."""

    schema: str = SERVING
    serving: Annotated[dict[Name, Level], Meta(max_length=100)] = field(default_factory=dict)
    latency: Annotated[list[Latency], Meta(max_length=MOST_SERVED)]
    growth: Annotated[list[Growth], Meta(max_length=MOST_SERVED)]
    throughput: Annotated[list[Throughput], Meta(max_length=MOST_SERVED)]
