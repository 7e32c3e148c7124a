"""Variants that copy by themselves: what the copies alone take, and how well kernels hide behind them."""

from __future__ import annotations

from collections.abc import Sequence

from mini_dnn.report.board import Entry
from mini_dnn.report.document import Table
from mini_dnn.report.load import OLD_LAYER_TIMES
from mini_dnn.report.rows import Row, course_at, title
from mini_dnn.report.tables import name_of, number, percent

LIMIT = 1.15  # times the slower direction's copy that a layer may take at the course's problems
ONE_PART = "one part"

ABOUT = (
    "Copies that overlap with kernels shorten the layer time, not the op time. Hidden: the overlap of "
    "copies and kernels, as a fraction of the shorter of the two; a batch that is too small to be "
    "split is one part, without any overlap. Slower copy: the longer one of the copies of inputs and of "
    "outputs, at the rates of pinned memory that the same run measured. A layer cannot be faster than that; "
    "at {at} it should be within {limit} of it."
)


def about(op: str) -> str:
    """What the table shows, and what is asked of it."""
    return ABOUT.format(at=title(course_at(op)), limit=LIMIT)


def slower_copy_ms(row: Row) -> float | None:
    """What the larger of both copies takes at the measured pinned rates; None without these."""
    rates, arrays = row.record.memory, row.sizes.arrays.values()
    if "h2d_gbps" not in rates or "d2h_gbps" not in rates:
        return None
    bytes_in = sum(array.nbytes for array in arrays if array.role == "in" and array.split)
    bytes_out = sum(array.nbytes for array in arrays if array.role == "out" and array.split)
    return max(bytes_in / rates["h2d_gbps"], bytes_out / rates["d2h_gbps"]) / 1e6


def over_slower_copy(row: Row) -> float | None:
    """The layer time as a multiple of the slower copy."""
    copy_ms = slower_copy_ms(row)
    return None if copy_ms is None or row.layer_ms is None else row.layer_ms / copy_ms


def hidden(row: Row) -> str:
    """How much was hidden, in words."""
    assert row.streams is not None, "the caller looks"
    copies = sum(span.kind == "copy_in" for span in row.streams.spans)
    return ONE_PART if copies == 1 else percent(row.streams.hidden_fraction)


def overlap_table(entries: Sequence[Entry]) -> Table:
    """How well those variants overlap that copy by themselves."""
    rows = [
        [
            name_of(entry),
            row.problem,
            hidden(row),
            number(row.op_ms),
            number(row.layer_ms),
            number(slower_copy_ms(row)),
            number(over_slower_copy(row)),
        ]
        for entry in entries
        for row in entry.rows.values()
        if row.streams
    ]
    times = ["op time, ms", "layer time, ms", "slower copy, ms", "layer / slower copy"]
    return Table(["variant", "problem", "hidden", *times], rows, text_columns=2)


def verdict(entries: Sequence[Entry]) -> str:
    """Which rows pass the limit, if it is asked of them: at the course's problems."""
    rows = [row for entry in entries for row in entry.rows.values() if row.streams]
    if not rows or rows[0].at != course_at(rows[0].op):
        return ""
    ratios = {f"`{row.variant}`, {row.problem}": over_slower_copy(row) for row in rows}
    beyond = [f"{name} ({number(ratio)})" for name, ratio in ratios.items() if ratio and ratio > LIMIT]
    if not beyond:
        return ""
    fill = " in a layer time with the NaN fill" * any(row.record.schema == OLD_LAYER_TIMES for row in rows)
    return f"Beyond {LIMIT}{fill}: {'; '.join(beyond)}."
