"""Which plots a device's results allow, with their captions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from mini_dnn.report import plots
from mini_dnn.report.board import Board, Entry, tflops
from mini_dnn.report.document import Block, Figure, Heading
from mini_dnn.report.roofline import roofline
from mini_dnn.report.rows import table_of, title
from mini_dnn.report.theme import picture

OVERLAP = (
    "One traced run. All streams share one copy engine each way, so a copy's bar includes its wait for the "
    "engine. Hidden: how much of the shorter of copies and kernels ran while the other did."
)
COLUMNS = (
    "FLOPs and bytes follow from the sizes, so all variants at a problem stand in a column. Memory: a copy "
    "measured on this device; arithmetic: computed for its boost clock, not measured."
)


def figures(board: Board, suffix: str) -> Iterator[Block]:
    """Each plot whose data exist, under its heading; ``suffix`` ends the names of the files."""
    at = title(board.main)
    timed = [entry for entry in board.at(board.main) if any(row.op_ms for row in entry.rows.values())]
    rows = [row for entry in timed for row in entry.rows.values()]
    if timed:
        yield Heading(2, "Op times")
        caption = f"Op time of each problem at {at}; shorter is faster."
        overlapping = " and ".join(f"`{entry.variant}`" for entry in timed if entry.overlaps)
        if overlapping:
            caption += f" Of {overlapping} it is the kernels alone, without the copies that they hide."
        yield Figure(f"op_times{suffix}", picture(partial(plots.op_times, timed)), "Op times", caption)
    if steps := [entry for entry in timed if _has_parent(board, entry)]:
        yield Heading(2, "What each idea gained")
        caption = (
            f"Each variant over the one that it improves on, at {at}; without those over the CPU, "
            "and without those that overlap copies with kernels: they gain layer time, not op time."
        )
        yield Figure(f"ladder{suffix}", picture(partial(plots.ladder, board, steps)), "Speed-ups", caption)
    if points := [row for row in rows if tflops(row) and not row.on_host]:
        yield Heading(2, "Roofline")
        drawn = picture(partial(roofline, board, points))
        yield Figure(f"roofline{suffix}", drawn, "Roofline", f"{at[0].upper()}{at[1:]}. {COLUMNS}")
    sweeps = [s for s in board.sweeps if table_of(s.op, s.problem, s.batch) == board.main] or board.sweeps
    if sweeps:
        yield Heading(2, "Parameter sweep")
        caption = "Solid frame: the fastest; dotted: what the variant takes, for all problems."
        yield Figure(f"sweep{suffix}", picture(partial(plots.sweep, sweeps)), "Sweep", caption)
    if overlapped := [row for row in rows if row.streams and row.streams.spans]:
        yield Heading(2, "Copies and kernels over time")
        yield Figure(f"streams{suffix}", picture(partial(plots.streams, overlapped)), "Timeline", OVERLAP)


def _has_parent(board: Board, entry: Entry) -> bool:
    """Whether the variant's parent was measured, too, on the same device."""
    parent = board.entries.get((entry.any_row.parent or "", entry.at))
    if entry.overlaps or parent is None or parent.any_row.on_host:
        return False
    return bool(board.speed_up(entry, parent.variant))
