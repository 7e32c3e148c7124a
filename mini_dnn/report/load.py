"""Read results files. Later measurements replace earlier ones of the same thing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mini_dnn.errors import DataError, UsageError, meant_file
from mini_dnn.measuring.batches import SCHEMA as BATCHES
from mini_dnn.measuring.batches import Batches, batches_file
from mini_dnn.measuring.files import bench_file, is_verified, read_json, serving_file
from mini_dnn.measuring.records import SCHEMA
from mini_dnn.measuring.savings import SCHEMA as SAVINGS
from mini_dnn.measuring.savings import Savings, savings_file
from mini_dnn.measuring.serving_records import SERVING_SCHEMAS
from mini_dnn.paths import ROOT
from mini_dnn.report import peers
from mini_dnn.report.growth_rows import of_growth
from mini_dnn.report.peers import Peer
from mini_dnn.report.rows import Record, Row
from mini_dnn.report.serving import Serving

RESULTS = ROOT / "benchmarks" / "results"
MEASURE = "run.py bench --out benchmarks/results/NAME.json"  # the command that messages recommend
MOST = {"variants": 200, "batches": 100, "problems": 200}  # the largest numbers that a page can show
OLD_LAYER_TIMES = 1  # in this schema, layer_ms includes the fill with NaN

Run = tuple[Record, list[Row]]


@dataclass(frozen=True)
class Results:
    """The contents of the files."""

    records: Sequence[Record]  # in the order of their start times
    rows: Sequence[Row]  # the latest for each device, operation, variant, batch size and problem
    runs: Sequence[Row]  # all of them
    peers: Sequence[Peer]  # the latest for each device, peer, precision, order, batch size and problem
    servings: Sequence[Serving]  # in the order of their start times
    savings: Sequence[Savings]  # the latest for each device and operation
    batches: Sequence[Batches]  # in the order of their start times
    unverified: Sequence[Path]  # files of older versions, which have no checksum


@dataclass
class _Contents:
    """The contents of files by kind, each in the order of the start times."""

    bench: list[Run] = field(default_factory=list)
    growth: list[Run] = field(default_factory=list)  # of files on serving
    servings: list[Serving] = field(default_factory=list)
    libraries: list[tuple[str, list[Peer]]] = field(default_factory=list)  # with start times
    savings: list[Savings] = field(default_factory=list)
    batches: list[Batches] = field(default_factory=list)
    unverified: list[Path] = field(default_factory=list)  # files without a checksum


def results_files(given: Sequence[Path]) -> list[Path]:
    """Return the files to read: those given, the ``*.json`` files of a given folder, or the stored ones.

    Raises
    ------
    UsageError
        There are no results files, or a path does not exist.
    """
    found: list[Path] = []
    for path in given or [RESULTS]:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files or not files[0].is_file():
            raise UsageError(
                f"no results: {path} is neither a results file nor a folder with *.json{meant_file(path)}. "
                f"Measure first: {MEASURE}"
            )
        found += files
    return list(dict.fromkeys(file.resolve() for file in found))  # the same file twice is not a second run


def load(files: Iterable[Path]) -> Results:
    """Read results files. For each device, variant, batch size and problem, the latest row counts.

    The start time decides which run is later. If start times are equal, the order of the files decides.

    Raises
    ------
    DataError
        A file is not JSON or has another schema, or a field is missing or of the wrong type. The message
        names file and field.
    """
    files = list(files)
    found = _read(files)
    _check_number([row for _, rows in (*found.bench, *found.growth) for row in rows], files)
    latest = {_key(row): row for _, rows in found.bench for row in rows}
    if not latest:
        names = ", ".join(map(str, files))
        others = found.servings or found.libraries or found.savings or found.batches
        beside = " (files of other kinds are shown with op times of the same device)" if others else ""
        raise DataError(f"{names}: no rows, so nothing was measured{beside}. Measure again: {MEASURE}")
    for _, rows in found.growth:
        for row in rows:  # growth rows of the present code; a complete run of that code is preferred
            before = latest.get(_key(row))
            if before is None or before.layer_ms is None or before.code_hash != row.code_hash:
                latest[_key(row)] = row
    runs = sorted([*found.bench, *found.growth], key=_started)
    of_peers = [peer for _, rows in found.libraries for peer in rows]
    return Results(
        records=[record for record, _ in runs],
        rows=list(latest.values()),
        runs=[row for _, rows in runs for row in rows],
        peers=list({peer.key: peer for peer in of_peers}.values()),
        servings=found.servings,
        savings=list({(one.content.device.name, one.content.op): one for one in found.savings}.values()),
        batches=found.batches,
        unverified=found.unverified,
    )


def _check_number(rows: Sequence[Row], files: Sequence[Path]) -> None:
    """Raise an error if there are more rows than a page can show."""
    found: dict[str, set[Any]] = {
        "variants": {row.variant for row in rows},
        "batches": {(row.op, row.batch) for row in rows},
        "problems": {(row.op, row.problem) for row in rows},
    }
    for what, most in MOST.items():
        if len(found[what]) > most:
            raise DataError(
                f"{', '.join(map(str, files))}: {len(found[what]):,} {what}, but a page can show only "
                f"{most}; name fewer files, or measure fewer problems per file"
            )


def _read(files: Iterable[Path]) -> _Contents:
    """Read files of all kinds, and sort each kind by start time."""
    found = _Contents()
    for file in files:
        _add(found, file)
    for runs in (found.bench, found.growth):
        runs.sort(key=_started)
    found.servings.sort(key=lambda one: one.content.started)
    found.libraries.sort(key=lambda pair: pair[0])
    found.savings.sort(key=lambda one: one.content.started)
    found.batches.sort(key=lambda one: one.content.started or "")
    return found


def _add(found: _Contents, file: Path) -> None:
    """Read a file, and add its content to that of its kind."""
    content = read_json(file)
    verified, schema = is_verified(content), content.get("schema")
    found.unverified += [] if verified else [file]
    if schema in peers.SCHEMAS:
        found.libraries.append(peers.read(content, file))
    elif schema == SAVINGS:
        found.savings.append(Savings(file, savings_file(content, file)))
    elif schema == BATCHES:
        found.batches.append(Batches(file, batches_file(content, file)))
    elif schema in SERVING_SCHEMAS:
        serving = serving_file(content, file)
        found.servings.append(Serving(file, serving))
        record = Record.of(serving, file=file, schema=SCHEMA, verified=verified)
        found.growth.append((record, of_growth(serving.growth, record)))
    else:
        found.bench.append(_bench(content, file))


def _started(run: Run) -> str:
    return run[0].started


def _key(row: Row) -> tuple[str, str, str, int, str]:
    return row.record.device.name, row.op, row.variant, row.batch, row.problem


def _bench(content: dict[str, Any], file: Path) -> Run:
    found = bench_file(content, file)
    lists = {"skipped": found.skipped, "sweeps": found.sweeps}
    record = Record.of(found, file=file, schema=found.schema, verified=is_verified(content), **lists)
    return record, [Row.of(row, record) for row in found.rows]
