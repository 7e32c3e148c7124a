"""What results files hold, declared once for those that write them and those that read them.

What a file says beyond these fields is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from mini_dnn.running.timing import Timing

# Of the files of ``bench``. Since 2: rows name their operation and problem, and say whether op times had
# settled. Since 1: layer_ms is without the NaN fill, rows have a code_hash, their state is read all through.
SCHEMA = 3
SCHEMAS = (1, 2, SCHEMA)  # that can be read
SERVING = "serving-2"  # since 1: rows of growth name their operation and problem
SERVING_SCHEMAS = ("serving-1", SERVING)

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(gt=0)]


@dataclass(frozen=True, kw_only=True)
class State:
    """What a GPU's sensors said: see `mini_dnn.measuring.nvml.summary`."""

    driver: str
    sm_mhz: int
    memory_mhz: int
    temperature_c: int
    power_w: float
    throttle_reasons: Annotated[str, Meta(pattern="^0x[0-9a-fA-F]+$")]
    readings: int | None = None  # None in the oldest files


@dataclass(frozen=True, kw_only=True)
class Place:
    """On what was measured."""

    name: str  # of the device, for people
    cpu: str
    state: State | None  # of the GPU before the run


@dataclass(frozen=True, kw_only=True)
class Head:
    """What all figures of a file share."""

    started: str  # ISO 8601
    commit: str | None
    dirty: bool | None
    device: Place
    data: str  # a data set's name, or "random"
    versions: dict[str, str]
    method: Timing
    memory: dict[str, Positive] = field(
        default_factory=dict
    )  # of the device: copy_gbps, fp32_tflops and so on


@dataclass(frozen=True, kw_only=True)
class Span:
    """When one step of a plan ran on the device."""

    kind: Literal["copy_in", "kernel", "copy_out"]
    label: str
    stream: int
    start_ms: float
    end_ms: float


@dataclass(frozen=True, kw_only=True)
class Streams:
    """How copies and kernels overlapped."""

    hidden_fraction: float
    spans: list[Span]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One problem of one variant."""

    op: str
    problem: str  # its name
    shape: dict[str, Any]  # its fields
    batch: Count
    variant: str
    parent: str | None
    precision: str
    source_hash: str | None  # of the kernel's bytes; None for a variant that runs on the host
    code_hash: str | None  # of what the kernel and variant.py compute; None also where the file is too old
    flops: int
    min_bytes: Count
    op_ms: Positive | None
    op_ms_min: Positive | None = None
    op_ms_max: Positive | None = None
    op_ms_quartiles: list[float] | None = None
    median_error: float | None  # half the 95 % confidence interval, as a fraction
    settled: bool | None = None  # whether op times had settled before they were taken; None: not known
    repeats: int
    parts: int
    layer_ms: float | None  # None where only the op was measured
    compile_ms: float | None = None
    max_error: float  # against float64
    error_of_bound: float | None = None
    accuracy: float | None = None  # of the network in which it was measured
    state: State | None  # of the GPU, the worst while the row was measured; schema 1: right after
    host: dict[str, float] | None = None  # how busy it was, where it computes
    streams: Streams | None = None


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A problem that a variant does not take."""

    op: str
    problem: str
    variant: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Op times of a variant over two of its parameters."""

    op: str
    problem: str
    variant: str
    batch: Count
    x_name: str
    x_values: list[int]
    y_name: str
    y_values: list[int]
    op_ms: list[list[Positive | None]]  # a list for each value of y
    best: tuple[int, int]  # what the variant takes, x and y

    def __post_init__(self) -> None:
        if [len(line) for line in self.op_ms] != [len(self.x_values)] * len(self.y_values):
            raise ValueError("op_ms has other lengths than x_values and y_values")
        if all(value is None for line in self.op_ms for value in line):
            raise ValueError("op_ms holds no time")


@dataclass(frozen=True, kw_only=True)
class BenchFile(Head):
    """A file of ``bench``."""

    schema: int = SCHEMA
    rows: list[Row]
    skipped: list[Skipped] = field(default_factory=list)
    sweeps: list[Sweep] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class OpTime:
    """An op time of a variant's code, with its spread: what every row of serving has."""

    variant: str
    code_hash: str | None
    op_ms: Positive | None
    op_ms_quartiles: list[float] | None = None
    median_error: float | None
    settled: bool | None = None
    repeats: int
    max_error: float
    state: State | None


@dataclass(frozen=True, kw_only=True)
class Latency(OpTime):
    """Requests of one entry each."""

    send: str
    graph: bool
    requests: Count
    p50_us: Positive
    p90_us: Positive
    p99_us: Positive
    max_us: Positive


@dataclass(frozen=True, kw_only=True)
class Growth(OpTime):
    """One of several batches of a problem."""

    op: str
    problem: str
    batch: Count
    parts: int
    flops: int


@dataclass(frozen=True, kw_only=True)
class Throughput(OpTime):
    """Batches one after the other."""

    send: str
    batch: Count
    batches: Count
    image_bytes: int | None = None
    images_per_s: Positive
    batch_ms: Positive
    batch_ms_of_passes: list[float] | None = None
    copy_ms: Positive
    over_longer: Positive
    accuracy: float | None = None


@dataclass(frozen=True, kw_only=True)
class ServingFile(Head):
    """A file of ``bench --latency --growth --throughput``."""

    schema: str = SERVING
    serving: dict[str, float] = field(default_factory=dict)
    latency: list[Latency]
    growth: list[Growth]
    throughput: list[Throughput]
