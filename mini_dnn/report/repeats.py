"""The spread of op times between separate runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from mini_dnn.report.board import Board, Key
from mini_dnn.report.document import Block, Folded, Heading, Table, Text
from mini_dnn.report.rows import Row, table_of
from mini_dnn.report.tables import percent

LIMIT = 0.03  # the largest spread that a published op time may have

ABOUT = (
    "The spread of separate runs of the same code on one device: the difference of the largest and the "
    "smallest op time, divided by the median of the runs."
)
ON_HOST = (
    "The limit does not apply to times on the CPU, which vary more because other programs share its cores, "
    "caches and clocks."
)


def spread(rows: Sequence[Row]) -> float | None:
    """Return (largest - smallest) / median of the op times, or None for fewer than two runs."""
    times = [row.op_ms for row in rows if row.op_ms is not None]
    return (max(times) - min(times)) / statistics.median(times) if len(times) > 1 else None


def repeats(board: Board) -> list[Block]:
    """The spread of every op time that was measured in several runs. Without repeated runs, no blocks."""
    found = {key: value for key, rows in board.runs.items() if (value := spread(rows)) is not None}
    on_gpu = {key: value for key, value in found.items() if not board.runs[key][0].on_host}
    on_host = {key: value for key, value in found.items() if key not in on_gpu}
    blocks: list[Block] = []
    if on_gpu:
        blocks += [Text(f"{ABOUT} {_verdict(on_gpu)}"), _table(board, on_gpu)]
    if on_host:
        blocks += [Text(ON_HOST if on_gpu else f"{ABOUT} {ON_HOST}"), _table(board, on_host)]
    return [Heading(2, "Spread over runs"), Folded("The spread of each time", blocks)] if blocks else []


def _verdict(found: Mapping[Key, float]) -> str:
    largest = max(found, key=found.__getitem__)
    variant, problem, batch = largest
    beyond = sum(value > LIMIT for value in found.values())
    kept = f"{beyond} of {len(found)} are beyond it" if beyond else f"all {len(found)} are within it"
    return (
        f"The limit is {percent(LIMIT)}: {kept}, and the largest is {percent(found[largest], 1)} "
        f"(`{variant}`, batch {batch:,}, {problem})."
    )


def _table(board: Board, found: Mapping[Key, float]) -> Table:
    variants = dict.fromkeys(variant for variant, _, _ in found)
    measured = dict.fromkeys((problem, batch) for _, problem, batch in board.runs)
    places = [
        (problem, batch)
        for at in board.tables
        for name in board.problems(at)
        for problem, batch in measured
        if problem == name and table_of(board.operation.name, problem, batch) == at
    ]
    rows = []
    for variant in variants:
        of_variant = {place: found.get((variant, *place)) for place in places}
        runs = {len(board.runs[variant, *place]) for place, value in of_variant.items() if value is not None}
        cells = [percent(value, 1) for value in of_variant.values()]
        rows.append([f"`{variant}`", "–".join(map(str, sorted({min(runs), max(runs)}))), *cells])
    return Table(["variant", "runs", *(f"{problem}, batch {batch:,}" for problem, batch in places)], rows)
