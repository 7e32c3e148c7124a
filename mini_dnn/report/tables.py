"""The tables of the report, and a CSV file of all rows."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

from mini_dnn.measuring.roof import Roof
from mini_dnn.report.board import Board, Entry, gbps, tflops, throttling
from mini_dnn.report.document import NOT_THERE, Table
from mini_dnn.report.load import OLD_LAYER_TIMES
from mini_dnn.report.rows import At, Record, Row
from mini_dnn.running.timing import Timing


def number(value: float | None, digits: int = 3) -> str:
    """Format a positive number with ``digits`` significant digits and without an exponent."""
    if value is None:
        return NOT_THERE
    rounded = float(f"{value:.{digits}g}")  # 9.999 rounds to 10.0, which has more digits before the point
    decimals = max(0, digits - 1 - math.floor(math.log10(rounded))) if rounded > 0 else 0
    return f"{value:,.{decimals}f}"


def times(factor: float | None) -> str:
    """Format a speed-up."""
    return NOT_THERE if factor is None else f"{number(factor)}×"


def percent(fraction: float | None, decimals: int = 0) -> str:
    """Format a fraction as a percentage."""
    return NOT_THERE if fraction is None else f"{fraction:.{decimals}%}".replace("%", " %")


def name_of(entry: Entry) -> str:
    """A variant's name, with marks that a reader of its figures needs."""
    marks = ["CPU"] * entry.any_row.on_host + ["stale"] * bool(entry.stale)
    return f"`{entry.variant}`" + (f" ({', '.join(marks)})" if marks else "")


def op_columns(problems: Sequence[str]) -> list[str]:
    """Headings of the op times: one for each problem, and one for their sum if there are several."""
    return [f"op time {at}, ms" for at, _ in enumerate(problems, 1)] + ["sum, ms"] * (len(problems) > 1)


def op_cells(entry: Entry) -> list[str]:
    """The op times of each problem, and their sum if there are several."""
    sums = [entry.sum_ms] * (len(entry.problems) > 1)
    return [number(ms) for ms in [*map(entry.op_ms, entry.problems), *sums]]


def times_table(board: Board, at: At) -> Table:
    """All variants of a table: op times, speed-ups, accuracy."""
    entries, problems = board.at(at), board.problems(at)
    baseline = [board.baseline] if board.baseline else []
    rows = []
    for entry in entries:
        parent = entry.any_row.parent
        accuracy = entry.any_row.accuracy
        rows.append(
            [
                name_of(entry),
                f"`{parent}`" if parent else NOT_THERE,
                entry.any_row.precision,
                *op_cells(entry),
                *(
                    NOT_THERE if entry.overlaps else times(board.speed_up(entry, over))
                    for over in (parent, *baseline)
                ),
                *([NOT_THERE if accuracy is None else f"{accuracy:.4f}"] if board.in_network else []),
            ]
        )
    columns = [
        "variant",
        "parent",
        "precision",
        *op_columns(problems),
        "over parent",
        *(f"over `{b}`" for b in baseline),
    ]
    sums = {
        at: e.sum_ms for at, e in enumerate(entries) if e.sum_ms is not None and not (e.stale or e.overlaps)
    }
    fastest = frozenset([min(sums, key=sums.__getitem__)]) if sums else frozenset()
    columns += ["accuracy"] if board.in_network else []
    bar = columns.index("sum, ms") if len(problems) > 1 else 3
    return Table(columns, rows, text_columns=3, strong=fastest, bar=bar, name="variants")


def rates_table(board: Board, at: At) -> Table:
    """All problems of all variants of a table: rates, roofline, error, and the uncertainty of the time."""
    rows = []
    for entry in board.at(at):
        for row in entry.rows.values():
            roof = board.roof(row)
            rows.append(
                [
                    name_of(entry),
                    row.problem,
                    row.precision,
                    bound(roof),
                    number(gbps(row)),
                    number(tflops(row)),
                    fraction(roof),
                    f"{row.max_error:.1e}",
                    str(row.repeats),
                    percent(row.median_error, 2),
                ]
            )
    columns = ["variant", "problem", "precision", "nearer ceiling", "GB/s", "TFLOP/s", "of the roofline"]
    columns += ["max error", "timed runs", "median ±"]
    return Table(columns, rows, text_columns=4, name="variants")


def layers_table(board: Board, at: At) -> Table:
    """The layer time of every variant that has one, and the op's share of it."""
    entries, problems = board.at(at), board.problems(at)
    rows = []
    for entry in entries:
        found = [entry.rows.get(name) for name in problems]
        layer_ms = [row.layer_ms if row else None for row in found]
        shares = [
            row.op_ms / row.layer_ms if row and row.op_ms and row.layer_ms and not row.on_host else None
            for row in found
        ]
        if any(layer_ms):
            rows.append([name_of(entry), *map(number, layer_ms), *map(_share, shares)])
    columns = [f"layer time {at}, ms" for at, _ in enumerate(problems, 1)]
    columns += [f"op {at}, of its layer" for at, _ in enumerate(problems, 1)]
    return Table(["variant", *columns], rows, name="variants")


def _share(fraction: float | None) -> str:
    """Format a share that may be small."""
    return percent(fraction, 1 if fraction is not None and fraction < 0.1 else 0)


def bound(roof: Roof | None) -> str:
    """Name the ceiling that limits the op."""
    return NOT_THERE if roof is None else "not known" if roof.missing else roof.bound


def fraction(roof: Roof | None) -> str:
    """Format the fraction of the roofline that is reached."""
    return NOT_THERE if roof is None else ("≥ " if roof.missing else "") + percent(roof.fraction)


def places_table(board: Board) -> Table:
    """Where and when each results file was measured."""
    rows = [
        [
            f"`{record.file.name}`",
            record.started[:16].replace("T", " "),
            record.data,
            _state(record, "driver"),
            _state(record, "sm_mhz"),
            _lowest_clock(board, record),
            _state(record, "memory_mhz"),
            _state(record, "temperature_c"),
            _state(record, "power_w"),
            ", ".join(_throttled(board, record)) or ("none seen" if record.device.state else NOT_THERE),
            f"`{record.commit[:10]}`" if record.commit else "unknown",
            {True: "yes", False: "no", None: "unknown"}[record.dirty],
        ]
        for record in board.records
    ]
    clocks = ["SM, MHz", "lowest SM, MHz", "memory, MHz", "°C", "W"]
    columns = ["file", "started, UTC", "data", "driver", *clocks, "throttled", "commit", "changed files"]
    return Table(columns, rows, text_columns=4)


def method_text(method: Timing) -> str:
    """Describe how an op was timed."""
    cache = "flushed before each run" if method.cold_cache else "left as the run before leaves it"
    budget = f"{method.budget_s:g}\N{NO-BREAK SPACE}s"
    return (
        f"{method.warm_up} warm-up runs; then {method.repeats} to {method.max_repeats} timed runs, "
        f"until the median is known to ±{percent(method.precision, 1)} or {budget} are "
        f"spent; the L2 cache is {cache}"
    )


def ops_csv(boards: Sequence[Board]) -> str:
    """All rows with derived figures. The names of the columns contain the units."""
    lines = [
        _csv_row(board, entry, row)
        for board in boards
        for entry in board.entries.values()
        for row in entry.rows.values()
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _csv_row(board: Board, entry: Entry, row: Row) -> dict[str, Any]:
    roof = board.roof(row)
    return {
        "device": board.device,
        "op": row.op,
        "variant": row.variant,
        "parent": row.parent,
        "batch": row.batch,
        "problem": row.problem,
        "precision": row.precision,
        "op_ms": row.op_ms,
        "median_error": row.median_error,
        "repeats": row.repeats,
        "layer_ms": row.layer_ms,
        "layer_ms_has_fill": row.record.schema == OLD_LAYER_TIMES,
        "gbps": gbps(row),
        "tflops": tflops(row),
        "roofline_fraction": roof and roof.fraction,
        "bound_by": roof and bound(roof),
        "max_error": row.max_error,
        "accuracy": row.accuracy,
        "sum_op_ms": entry.sum_ms,
        "over_parent": None if entry.overlaps else board.speed_up(entry, row.parent),
        "over_baseline": None if entry.overlaps else board.speed_up(entry, board.baseline),
        "flops": row.flops,
        "min_bytes": row.min_bytes,
        "stale": entry.stale,
        "throttled": " ".join(throttling(row)),
        "commit": row.record.commit,
        "dirty": row.record.dirty,
        "started": row.record.started,
        "file": row.record.file.name,
        "verified": row.record.verified,
    }


def _state(record: Record, name: str) -> str:
    value = getattr(record.device.state, name, None)
    return f"{value:.0f}" if isinstance(value, float) else NOT_THERE if value is None else str(value)


def _throttled(board: Board, record: Record) -> list[str]:
    return sorted({reason for row in _rows(board, record) for reason in throttling(row)})


def _lowest_clock(board: Board, record: Record) -> str:
    clocks = [row.state.sm_mhz for row in _rows(board, record) if row.state]
    return str(min(clocks)) if clocks else NOT_THERE


def _rows(board: Board, record: Record) -> list[Row]:
    return [row for rows in board.runs.values() for row in rows if row.record is record]
