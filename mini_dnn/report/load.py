"""Read results files. Later measurements replace earlier ones of the same thing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mini_dnn.errors import DataError, UsageError, meant_file
from mini_dnn.measuring.batches import SCHEMA as BATCHES
from mini_dnn.measuring.batches import Batches, batches_file
from mini_dnn.measuring.files import bench_file, is_verified, read_json, serving_file
from mini_dnn.measuring.records import SCHEMA
from mini_dnn.measuring.savings import SCHEMAS as SAVINGS
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
    bench, growth, servings, of_peers, savings, batches, unverified = _read(files)
    _check_number([row for _, rows in (*bench, *growth) for row in rows], files)
    latest = {_key(row): row for _, rows in bench for row in rows}
    if not latest:
        names = ", ".join(map(str, files))
        others = servings or of_peers or savings or batches
        beside = " (files of other kinds are shown with op times of the same device)" if others else ""
        raise DataError(f"{names}: no rows, so nothing was measured{beside}. Measure again: {MEASURE}")
    for _, rows in growth:
        for row in rows:  # growth rows of the present code; a complete run of that code is preferred
            before = latest.get(_key(row))
            if before is None or before.layer_ms is None or before.code_hash != row.code_hash:
                latest[_key(row)] = row
    runs = sorted([*bench, *growth], key=_started)
    return Results(
        records=[record for record, _ in runs],
        rows=list(latest.values()),
        runs=[row for _, rows in runs for row in rows],
        peers=list({peer.key: peer for peer in of_peers}.values()),
        servings=servings,
        savings=savings,
        batches=batches,
        unverified=unverified,
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


def _read(
    files: Iterable[Path],
) -> tuple[list[Run], list[Run], list[Serving], list[Peer], list[Savings], list[Batches], list[Path]]:
    """Return the runs of ``bench``, growth runs, serving, libraries, savings and networks, with start times.

    The last list has the files without a checksum.
    """
    bench: list[Run] = []
    growth: list[Run] = []
    servings: list[Serving] = []
    libraries: list[tuple[str, list[Peer]]] = []
    savings: list[Savings] = []
    batches: list[Batches] = []
    unverified: list[Path] = []
    for file in files:
        content = read_json(file)
        unverified += [] if is_verified(content) else [file]
        schema = content.get("schema")
        if schema in peers.SCHEMAS:
            libraries.append(peers.read(content, file))
        elif schema in SAVINGS:
            savings.append(Savings(file, savings_file(content, file)))
        elif schema == BATCHES:
            batches.append(Batches(file, batches_file(content, file)))
        elif schema in SERVING_SCHEMAS:
            found = serving_file(content, file)
            servings.append(Serving(file, found))
            record = Record.of(found, file=file, schema=SCHEMA, verified=is_verified(content))
            growth.append((record, of_growth(found.growth, record)))
        else:
            bench.append(_bench(content, file))
    servings.sort(key=lambda serving: serving.content.started)
    libraries.sort(key=lambda pair: pair[0])
    of_peers = [peer for _, rows in libraries for peer in rows]
    savings.sort(key=lambda one: one.content.started)
    batches.sort(key=lambda one: one.content.started or "")
    latest = {(one.content.device.name, one.content.op): one for one in savings}
    runs = sorted(bench, key=_started), sorted(growth, key=_started)
    return *runs, servings, of_peers, list(latest.values()), batches, unverified


def _started(run: Run) -> str:
    return run[0].started


def _key(row: Row) -> tuple[str, str, str, int, str]:
    return row.record.device.name, row.op, row.variant, row.batch, row.problem


def _bench(content: dict[str, Any], file: Path) -> Run:
    found = bench_file(content, file)
    lists = {"skipped": found.skipped, "sweeps": found.sweeps}
    record = Record.of(found, file=file, schema=found.schema, verified=is_verified(content), **lists)
    return record, [Row.of(row, record) for row in found.rows]
