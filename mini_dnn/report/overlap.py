"""Variants that overlap their own copies: how long the copies take, and how well they hide the kernels."""

from __future__ import annotations

from collections.abc import Sequence

from mini_dnn.report.board import Entry
from mini_dnn.report.document import Table
from mini_dnn.report.load import OLD_LAYER_TIMES
from mini_dnn.report.rows import Row, course_at, title
from mini_dnn.report.tables import name_of, number, percent

# The most that a layer of the course may take, as a multiple of the copy in the slower direction
LIMIT = 1.15
ONE_PART = "one part"

ABOUT = (
    "Copies that overlap with kernels shorten the layer time, not the op time. Hidden: the overlap of "
    "copies and kernels, as a fraction of the shorter of the two; a batch that is too small to be "
    "split is one part, without any overlap. Slower copy: the longer one of the copies of inputs and of "
    "outputs, at the rates of pinned memory that the same run measured. A layer cannot be faster than that; "
    "at {at} it should be within {limit} of it."
)


def about(op: str) -> str:
    """Describe the table and the limit that applies."""
    return ABOUT.format(at=title(course_at(op)), limit=LIMIT)


def slower_copy_ms(row: Row) -> float | None:
    """The time of the longer copy at the measured page-locked rates, or None without these rates."""
    rates, arrays = row.record.memory, row.sizes.arrays.values()
    if "h2d_gbps" not in rates or "d2h_gbps" not in rates:
        return None
    bytes_in = sum(array.nbytes for array in arrays if array.role == "in" and array.split)
    bytes_out = sum(array.nbytes for array in arrays if array.role == "out" and array.split)
    return max(bytes_in / rates["h2d_gbps"], bytes_out / rates["d2h_gbps"]) / 1e6


def over_slower_copy(row: Row) -> float | None:
    """The layer time as a multiple of the slower direction's copy."""
    copy_ms = slower_copy_ms(row)
    return None if copy_ms is None or row.layer_ms is None else row.layer_ms / copy_ms


def hidden(row: Row) -> str:
    """How much time was hidden, in words."""
    assert row.streams is not None, "the caller looks"
    copies = sum(span.kind == "copy_in" for span in row.streams.spans)
    return ONE_PART if copies == 1 else percent(row.streams.hidden_fraction)


def overlap_table(entries: Sequence[Entry]) -> Table:
    """How well each variant that overlaps its own copies hides the kernels."""
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
    """Say which rows of the course's problems meet the limit, if the limit applies to them."""
    rows = [row for entry in entries for row in entry.rows.values() if row.streams]
    if not rows or rows[0].at != course_at(rows[0].op):
        return ""
    ratios = {f"`{row.variant}`, {row.problem}": over_slower_copy(row) for row in rows}
    beyond = [f"{name} ({number(ratio)})" for name, ratio in ratios.items() if ratio and ratio > LIMIT]
    if not beyond:
        return ""
    fill = " in a layer time with the NaN fill" * any(row.record.schema == OLD_LAYER_TIMES for row in rows)
    return f"Beyond {LIMIT}{fill}: {'; '.join(beyond)}."
