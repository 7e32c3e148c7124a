"""Results files: read, checked field by field, later measurements in the place of earlier ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from mini_dnn.errors import DataError, UsageError
from mini_dnn.measuring.bench import SCHEMA
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.paths import ROOT
from mini_dnn.report import peers, serving
from mini_dnn.report.fields import NUMBER, Fields, again, check, read_json, refuse
from mini_dnn.report.growth_rows import of_growth
from mini_dnn.report.peers import Peer
from mini_dnn.report.rows import Record, Row
from mini_dnn.report.serving import Serving

RESULTS = ROOT / "benchmarks" / "results"
MEASURE = "run.py bench --out benchmarks/results/NAME.json"  # what the messages tell people to run

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
    "code_hash": (str, NoneType),
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
SHAPE: Fields = dict.fromkeys(("N", "C", "H", "W", "M", "R", "S"), (int,))
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
OLD_SCHEMA = 1  # still read: layer_ms is with the NaN fill, and rows may have no code_hash
SPAN_KINDS = ("copy_in", "kernel", "copy_out")


@dataclass(frozen=True)
class Results:
    """What the files hold."""

    records: Sequence[Record]  # in the order in which they were started
    rows: Sequence[Row]  # the latest of each device, variant, batch and layer
    runs: Sequence[Row]  # all of them
    peers: Sequence[Peer]  # the latest of each device, peer, precision, order, batch and layer
    servings: Sequence[Serving]  # in the order in which they were started


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
    return list(dict.fromkeys(file.resolve() for file in found))  # a file twice is no second run


def load(files: Iterable[Path]) -> Results:
    """Read results files. Of rows for the same device, variant, batch and layer the latest counts.

    Which run is later is told by when it started, and by the order of the files where that is equal.

    Raises
    ------
    DataError
        Not JSON, another schema, or a field that is missing or of the wrong kind; names file and field.
    """
    read = [(file, read_json(file)) for file in files]
    of_peers = [peers.read(content, file) for file, content in read if _schema(content) in peers.SCHEMAS]
    of_serving = [serving.read(content, file) for file, content in read if _schema(content) == serving.SCHEMA]
    others = (*peers.SCHEMAS, serving.SCHEMA)
    of_bench = [_record(content, file) for file, content in read if _schema(content) not in others]
    of_bench.sort(key=lambda pair: pair[0].started)
    latest = {_key(row): row for _, rows in of_bench for row in rows}
    if not latest:
        names = ", ".join(str(file) for file, _ in read)
        beside = " (what serving costs is shown beside op times of the same device)" if of_serving else ""
        raise DataError(f"{names}: no rows, so nothing was measured{beside}. Measure again: {MEASURE}")
    of_growths = [_growth(content, file) for file, content in read if _schema(content) == serving.SCHEMA]
    for _, rows in sorted(of_growths, key=lambda pair: pair[0].started):
        for row in rows:  # of the present code; a whole run of that code says more
            found = latest.get(_key(row))
            if found is None or found.layer_ms is None or found.code_hash != row.code_hash:
                latest[_key(row)] = row
    of_bench = sorted([*of_bench, *of_growths], key=lambda pair: pair[0].started)
    latest_peers = {
        (p.device, p.peer, p.precision, p.order, p.batch, p.layer): p
        for _, rows in sorted(of_peers, key=lambda pair: pair[0])
        for p in rows
    }
    runs = [row for _, rows in of_bench for row in rows]
    servings = [found for _, found in sorted(of_serving, key=lambda pair: pair[0])]
    records = [record for record, _ in of_bench]
    return Results(records, list(latest.values()), runs, list(latest_peers.values()), servings)


def _key(row: Row) -> tuple[str, str, int, str]:
    return row.record.device, row.variant, row.batch, row.layer


def _growth(content: Any, file: Path) -> tuple[Record, list[Row]]:
    check(content["device"], DEVICE, file, "device.")
    check(content["method"], METHOD, file, "method.")
    return of_growth(content, file, _ceilings(content["memory"], file))


def _schema(content: Any) -> Any:
    return content.get("schema") if isinstance(content, dict) else None


def _record(content: Any, file: Path) -> tuple[Record, list[Row]]:
    found = _schema(content)
    if found not in (OLD_SCHEMA, SCHEMA):
        known = f"this version reads {OLD_SCHEMA} and {SCHEMA}"
        raise DataError(f"{file}: schema is {found!r}, and {known}. {again(file)}")
    check(content, RECORD, file, "")
    check(content["device"], DEVICE, file, "device.")
    _check_state(content["device"]["state"], file, "device.state.")
    check(content["method"], METHOD, file, "method.")
    for at, sweep in enumerate(content.get("sweeps", [])):
        _check_sweep(sweep, file, f"sweeps[{at}].")
    record = Record.of(content, file, found, _ceilings(content.get("memory") or {}, file))
    return record, [_row(row, record, f"rows[{at}].") for at, row in enumerate(content["rows"])]


def _row(row: Any, record: Record, where: str) -> Row:
    if record.schema == OLD_SCHEMA and isinstance(row, dict):
        row = {"code_hash": None} | row
    check(row, ROW, record.file, where, POSITIVE)
    check(row["shape"], SHAPE, record.file, where + "shape.")
    _check_state(row.get("state"), record.file, where + "state.")
    streams = row.get("streams")
    if streams is not None:
        check(streams, STREAMS, record.file, where + "streams.")
        for at, span in enumerate(streams["spans"]):
            check(span, SPAN, record.file, f"{where}streams.spans[{at}].")
            if span["kind"] not in SPAN_KINDS:
                name = f"{where}streams.spans[{at}].kind"
                refuse(record.file, name, f"is {span['kind']!r}; expected one of {', '.join(SPAN_KINDS)}")
    known = {name: row[name] for name in ROW if name != "shape"}
    shape = ConvShape(**{name: row["shape"][name] for name in SHAPE})
    return Row(record=record, shape=shape, state=row.get("state"), streams=streams, **known)


def _check_state(state: Any, file: Path, where: str) -> None:
    if state is None:
        return
    check(state, STATE, file, where)
    if not HEXADECIMAL.fullmatch(state["throttle_reasons"]):
        refuse(file, where + "throttle_reasons", f"is {state['throttle_reasons']!r}; expected such as '0x1'")


def _check_sweep(sweep: Any, file: Path, where: str) -> None:
    check(sweep, SWEEP, file, where)
    expected = (len(sweep["y_values"]), len(sweep["x_values"]))
    lengths = {len(line) if isinstance(line, list) else 0 for line in sweep["op_ms"]}
    if (len(sweep["op_ms"]), *lengths) != expected:
        lines = f"expected {expected[0]} lists (one a value of y) of {expected[1]} (one a value of x)"
        refuse(file, where + "op_ms", f"has other lengths than x_values and y_values: {lines}")
    for value in (value for line in sweep["op_ms"] for value in line):
        if value is not None and not (isinstance(value, NUMBER) and value > 0):
            refuse(file, where + "op_ms", f"holds {value!r}; expected milliseconds or null")
    if len(sweep["best"]) != 2 or not any(value is not None for line in sweep["op_ms"] for value in line):
        refuse(file, where + "best", "must be [x, y], and op_ms must have at least one time")


def _ceilings(memory: Any, file: Path) -> dict[str, float]:
    if not isinstance(memory, dict):
        refuse(file, "memory", f"is {memory!r}; expected an object such as {{'copy_gbps': 4270}}")
    for name, value in memory.items():
        if not isinstance(value, NUMBER) or value <= 0:
            refuse(file, f"memory.{name}", f"is {value!r}; expected a number above 0")
    return memory
