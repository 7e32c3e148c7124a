"""What a smaller type saves: the record of ``benchmarks/savings.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from mini_dnn.measuring.energy import Load, Power
from mini_dnn.measuring.files import Stored, converted
from mini_dnn.measuring.records import (
    MOST_ROWS,
    Count,
    Hash,
    Level,
    Name,
    Place,
    Positive,
    Started,
    State,
    Versions,
    Words,
    check_started,
)

SCHEMA = "savings-2"  # since 1: files have a checksum
SCHEMAS = ("savings-1", SCHEMA)


@dataclass(frozen=True, kw_only=True)
class Method:
    """Seconds of each part of a measurement."""

    settle_s: Level = 3.0  # nothing runs, before the power of an idle GPU is measured
    idle_s: Level = 3.0
    warm_up_s: Level = 1.0
    run_s: Level = 3.0


@dataclass(frozen=True, kw_only=True)
class SavingsRow:
    """One program at one problem, under a load of nothing else.

    Parameters
    ----------
    kind, program
        Whose it is, and its name: a variant's, or a library's.
    operands, products
        Types of the operands in memory, and of the products in the arithmetic units.
    op_ms
        Mean time of a run while `runs` of them followed each other for `seconds`.
    operand_bytes
        Of all inputs and outputs, each once.
    peak_bytes
        Of all device memory that was taken at once, work space included.
    power_w
        While it ran.
    power_error
        How far off that may be, as a fraction: see `mini_dnn.measuring.energy.Power`.
    update_s
        From one update of the energy counter to the next.
    energy_j
        Of a run, above that of an idle GPU in the same time.
    relative_error
        Against float64: the norm of the difference over that of the answer.
    """

    kind: Literal["ours", "library"]
    program: Name
    operands: Name
    products: Name
    problem: Name
    code_hash: Hash | None
    runs: Count
    seconds: Positive
    op_ms: Positive
    flops: Count
    operand_bytes: Count
    peak_bytes: Count
    power_w: Positive
    power_error: Positive
    update_s: Positive
    energy_j: Positive
    relative_error: Level
    state: State | None

    @property
    def total_j(self) -> float:
        """Energy of a run, that of an idle GPU included."""
        return self.power_w * self.op_ms / 1e3


@dataclass(frozen=True, kw_only=True)
class SavingsFile:
    """What such a file says."""

    schema: str = SCHEMA
    started: Started
    commit: Name | None
    dirty: bool | None
    device: Place
    versions: Versions
    method: Method
    op: Name
    idle: Power  # before the rows
    idle_after: Power  # and after them, when the GPU is warm
    rows: Annotated[list[SavingsRow], Meta(max_length=MOST_ROWS)]
    # a program, and the reason
    skipped: Annotated[list[dict[Name, Words]], Meta(max_length=MOST_ROWS)] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_started(self.started)


Savings = Stored[SavingsFile]


def savings_file(content: Mapping[str, Any], file: Path) -> SavingsFile:
    """What a file says.

    Raises
    ------
    DataError
        A field is missing or of the wrong kind; names file and field.
    """
    return converted(content, SavingsFile, file)


def figures(load: Load, under_load: Power, idle: Power) -> dict[str, Any]:
    """The fields of a row that follow from what was measured."""
    return {
        "runs": load.runs,
        "seconds": load.until_s - load.since_s,
        "op_ms": load.op_s * 1e3,
        "power_w": under_load.watts,
        "power_error": under_load.error,
        "update_s": under_load.update_s,
        "energy_j": (under_load.watts - idle.watts) * load.op_s,
    }
