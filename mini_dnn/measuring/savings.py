"""The savings of a smaller type: the results files of ``benchmarks/savings.py``."""

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

SCHEMA = "savings-2"


@dataclass(frozen=True, kw_only=True)
class Method:
    """The duration of each part of a measurement, in seconds."""

    settle_s: Level = 3.0  # nothing runs before the power of an idle GPU is measured
    idle_s: Level = 3.0
    warm_up_s: Level = 1.0
    run_s: Level = 3.0


@dataclass(frozen=True, kw_only=True)
class SavingsRow:
    """One program at one problem, under steady load.

    Parameters
    ----------
    kind, program
        The kind of program, and its name: that of a variant or a library.
    operands, products
        The types of the operands in memory, and of the products in the arithmetic units.
    op_ms
        The mean time of a run while `runs` of them followed each other for `seconds`.
    operand_bytes
        The bytes of all inputs and outputs, each counted once.
    peak_bytes
        The peak of allocated device memory, including work space.
    power_w
        The power while it ran.
    power_error
        The possible error of the power, as a fraction: see `mini_dnn.measuring.energy.Power`.
    update_s
        The time between updates of the energy counter.
    energy_j
        The energy of a run, beyond that of an idle GPU in the same time.
    relative_error
        The norm of the difference from float64, divided by the norm of the answer.
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
        """The energy of a run, including that of an idle GPU."""
        return self.power_w * self.op_ms / 1e3


@dataclass(frozen=True, kw_only=True)
class SavingsFile:
    """The content of such a file."""

    schema: str = SCHEMA
    started: Started
    commit: Name | None
    dirty: bool | None
    device: Place
    versions: Versions
    method: Method
    op: Name
    idle: Power  # before the rows
    idle_after: Power  # after the rows, when the GPU is warm
    rows: Annotated[list[SavingsRow], Meta(max_length=MOST_ROWS)]
    # a program, and the reason
    skipped: Annotated[list[dict[Name, Words]], Meta(max_length=MOST_ROWS)] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_started(self.started)


Savings = Stored[SavingsFile]


def savings_file(content: Mapping[str, Any], file: Path) -> SavingsFile:
    """Read the content of a file.

    Raises
    ------
    DataError
        A field is missing or of the wrong type. The message names file and field.
    """
    return converted(content, SavingsFile, file)


def figures(load: Load, under_load: Power, idle: Power) -> dict[str, Any]:
    """Compute the fields of a row that follow from the measurements."""
    return {
        "runs": load.runs,
        "seconds": load.until_s - load.since_s,
        "op_ms": load.op_s * 1e3,
        "power_w": under_load.watts,
        "power_error": under_load.error,
        "update_s": under_load.update_s,
        "energy_j": (under_load.watts - idle.watts) * load.op_s,
    }
