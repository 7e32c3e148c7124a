"""Results files: read, checked field by field, later measurements in the place of earlier ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn

from mini_dnn.bench import SCHEMA
from mini_dnn.errors import DataError, UsageError
from mini_dnn.variant import ROOT

RESULTS = ROOT / "benchmarks" / "results"
MEASURE = "run.py bench --out benchmarks/results/NAME.json"  # what the messages tell people to run

NUMBER = (int, float)
Fields = Mapping[str, tuple[type, ...]]
RECORD: Fields = {
    "started": (str,),
    "commit": (str, NoneType),
    "dirty": (bool, NoneType),
    "device": (dict,),
    "data": (str,),
    "versions": (dict,),
    "method": (dict,),
    "rows": (list,),
}
DEVICE: Fields = {"name": (str,), "cpu": (str,), "state": (dict, NoneType)}
STATE: Fields = {
    "driver": (str,),
    "sm_mhz": (int,),
    "memory_mhz": (int,),
    "temperature_c": (int,),
    "power_w": NUMBER,
    "throttle_reasons": (str,),
}
METHOD: Fields = {
    "warm_up": (int,),
    "repeats": (int,),
    "max_repeats": (int,),
    "precision": NUMBER,
    "budget_s": NUMBER,
    "cold_cache": (bool,),
}
ROW: Fields = {
    "variant": (str,),
    "parent": (str, NoneType),
    "precision": (str,),
    "source_hash": (str, NoneType),
    "batch": (int,),
    "layer": (str,),
    "shape": (dict,),
    "flops": (int,),
    "min_bytes": (int,),
    "op_ms": (*NUMBER, NoneType),
    "median_error": (*NUMBER, NoneType),
    "repeats": (int,),
    "parts": (int,),
    "layer_ms": NUMBER,
    "max_error": NUMBER,
    "accuracy": NUMBER,
}
STREAMS: Fields = {"hidden_fraction": NUMBER, "spans": (list,)}
SPAN: Fields = {"kind": (str,), "stream": (int,), "start_ms": NUMBER, "end_ms": NUMBER, "label": (str,)}
SWEEP: Fields = {
    "variant": (str,),
    "layer": (str,),
    "batch": (int,),
    "x_name": (str,),
    "x_values": (list,),
    "y_name": (str,),
    "y_values": (list,),
    "op_ms": (list,),
    "best": (list,),
}
POSITIVE = ("batch", "flops", "min_bytes", "op_ms")  # logarithms and quotients are taken of them
HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
SPAN_KINDS = ("copy_in", "kernel", "copy_out")


@dataclass(frozen=True)
class Record:
    """One run of ``bench``."""

    file: Path
    started: str  # ISO 8601
    commit: str | None
    dirty: bool | None
    device: str
    cpu: str
    state: Mapping[str, Any] | None  # clocks and the like before the run
    data: str
    method: Mapping[str, Any]
    ceilings: Mapping[str, float]  # of the device: copy_gbps, fp32_tflops and so on
    sweeps: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Row:
    """One convolution layer of one variant at one batch."""

    record: Record
    variant: str
    parent: str | None
    precision: str
    source_hash: str | None  # None for a variant that runs on the host
    batch: int
    layer: str
    shape: Mapping[str, int]
    flops: int
    min_bytes: int
    op_ms: float | None
    median_error: float | None  # half the 95 % confidence interval, as a fraction
    repeats: int
    parts: int
    layer_ms: float
    max_error: float  # against float64
    accuracy: float
    state: Mapping[str, Any] | None  # of the GPU, right after the row was measured
    streams: Mapping[str, Any] | None

    @property
    def on_host(self) -> bool:
        """Whether the CPU computed it."""
        return self.source_hash is None


@dataclass(frozen=True)
class Results:
    """What the files hold."""

    records: Sequence[Record]  # in the order in which they were started
    rows: Sequence[Row]  # the latest of each device, variant, batch and layer


def results_files(given: Sequence[Path]) -> list[Path]:
    """The files to read: those given, all ``*.json`` of a folder that is given, or the stored ones.

    Raises
    ------
    UsageError
        There is none, or a path leads nowhere.
    """
    found: list[Path] = []
    for path in given or [RESULTS]:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files or not files[0].is_file():
            raise UsageError(
                f"no results: {path} is neither a results file nor a folder with *.json. "
                f"Measure first: {MEASURE}"
            )
        found += files
    return found


def load(files: Iterable[Path]) -> Results:
    """Read results files. Of rows for the same device, variant, batch and layer the latest counts.

    Which run is later is told by when it started, and by the order of the files where that is equal.

    Raises
    ------
    DataError
        Not JSON, another schema, or a field that is missing or of the wrong kind; names file and field.
    """
    read = sorted((_read(file) for file in files), key=lambda pair: pair[0].started)
    latest = {(r.record.device, r.variant, r.batch, r.layer): r for _, rows in read for r in rows}
    records = [record for record, _ in read]
    if not latest:
        files_read = ", ".join(str(record.file) for record in records)
        raise DataError(f"{files_read}: no rows, so nothing was measured. Measure again: {MEASURE}")
    return Results(records, list(latest.values()))


def _read(file: Path) -> tuple[Record, list[Row]]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:  # also of text that is not UTF-8
        raise DataError(f"{file} is no results file, as it is not JSON: {error}. {_again(file)}") from error
    found = content.get("schema") if isinstance(content, dict) else None
    if found != SCHEMA:
        raise DataError(
            f"{file}: schema is {found!r}, and this version reads schema {SCHEMA}. {_again(file)}"
        )
    _check(content, RECORD, file, "")
    _check(content["device"], DEVICE, file, "device.")
    _check_state(content["device"]["state"], file, "device.state.")
    _check(content["method"], METHOD, file, "method.")
    for at, sweep in enumerate(content.get("sweeps", [])):
        _check_sweep(sweep, file, f"sweeps[{at}].")
    record = Record(
        file=file,
        device=content["device"]["name"],
        cpu=content["device"]["cpu"],
        state=content["device"]["state"],
        ceilings=_ceilings(content.get("memory") or {}, file),
        sweeps=content.get("sweeps", []),
        **{name: content[name] for name in ("started", "commit", "dirty", "data", "method")},
    )
    return record, [_row(row, record, f"rows[{at}].") for at, row in enumerate(content["rows"])]


def _row(row: Any, record: Record, where: str) -> Row:
    _check(row, ROW, record.file, where)
    for name in POSITIVE:
        if row[name] is not None and row[name] <= 0:
            _refuse(record.file, where + name, f"is {row[name]}; expected more than 0")
    _check_state(row.get("state"), record.file, where + "state.")
    streams = row.get("streams")
    if streams is not None:
        _check(streams, STREAMS, record.file, where + "streams.")
        for at, span in enumerate(streams["spans"]):
            _check(span, SPAN, record.file, f"{where}streams.spans[{at}].")
            if span["kind"] not in SPAN_KINDS:
                name = f"{where}streams.spans[{at}].kind"
                _refuse(record.file, name, f"is {span['kind']!r}; expected one of {', '.join(SPAN_KINDS)}")
    known = {name: row[name] for name in ROW}
    return Row(record=record, state=row.get("state"), streams=streams, **known)


def _check_state(state: Any, file: Path, where: str) -> None:
    if state is None:
        return
    _check(state, STATE, file, where)
    if not HEXADECIMAL.fullmatch(state["throttle_reasons"]):
        _refuse(file, where + "throttle_reasons", f"is {state['throttle_reasons']!r}; expected such as '0x1'")


def _check_sweep(sweep: Any, file: Path, where: str) -> None:
    _check(sweep, SWEEP, file, where)
    expected = (len(sweep["y_values"]), len(sweep["x_values"]))
    lengths = {len(line) if isinstance(line, list) else 0 for line in sweep["op_ms"]}
    if (len(sweep["op_ms"]), *lengths) != expected:
        lines = f"expected {expected[0]} lists (one a value of y) of {expected[1]} (one a value of x)"
        _refuse(file, where + "op_ms", f"has other lengths than x_values and y_values: {lines}")
    for value in (value for line in sweep["op_ms"] for value in line):
        if value is not None and not (isinstance(value, NUMBER) and value > 0):
            _refuse(file, where + "op_ms", f"holds {value!r}; expected milliseconds or null")
    if len(sweep["best"]) != 2 or not any(value is not None for line in sweep["op_ms"] for value in line):
        _refuse(file, where + "best", "must be [x, y], and op_ms must have at least one time")


def _ceilings(memory: Any, file: Path) -> dict[str, float]:
    if not isinstance(memory, dict):
        _refuse(file, "memory", f"is {memory!r}; expected an object such as {{'copy_gbps': 4270}}")
    for name, value in memory.items():
        if not isinstance(value, NUMBER) or value <= 0:
            _refuse(file, f"memory.{name}", f"is {value!r}; expected a number above 0")
    return memory


def _check(found: Any, fields: Fields, file: Path, where: str) -> None:
    if not isinstance(found, dict):
        _refuse(file, where.rstrip(".") or "the file", f"is {found!r}; expected an object")
    for name, kinds in fields.items():
        if name not in found:
            _refuse(file, where + name, "is missing")
        if not isinstance(found[name], kinds):
            names = " or ".join("null" if kind is NoneType else kind.__name__ for kind in kinds)
            _refuse(file, where + name, f"is {found[name]!r}; expected {names}")


def _refuse(file: Path, field: str, what: str) -> NoReturn:
    raise DataError(f"{file}: {field} {what}. {_again(file)}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no measured number")


def _again(file: Path) -> str:
    return f"Leave the file out, or measure again: run.py bench --out {file}"
