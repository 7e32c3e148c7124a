"""The plots that a device's results allow, with their captions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from mini_dnn.report import plots
from mini_dnn.report.board import Board, Entry, tflops
from mini_dnn.report.document import Block, Figure, Heading
from mini_dnn.report.ladder import ladder_of
from mini_dnn.report.roofline import roofline
from mini_dnn.report.rows import table_of, title
from mini_dnn.report.theme import picture

OVERLAP = (
    "One traced run. All streams share one copy engine per direction, so the bar of a copy includes its "
    "wait for the engine. Hidden: the overlap of copies and kernels, as a fraction of the shorter of "
    "the two."
)
COLUMNS = (
    "FLOPs and bytes depend only on the sizes, so all variants at a problem are in one column. The rungs "
    "of the ladder have its numbers and colours; other variants are grey. The memory ceiling is the rate "
    "of a copy that was measured on this device. The arithmetic ceilings are computed for its boost clock, "
    "not measured."
)


def roofline_blocks(board: Board, suffix: str) -> Iterator[Block]:
    """The roofline of the ladder's problems, or of all. ``suffix`` ends the name of the file."""
    ladder = ladder_of(board)
    chosen = ladder.problems if ladder else board.problems(board.main)
    rows = [row for entry in board.at(board.main) for row in entry.rows.values()]
    points = [row for row in rows if tflops(row) and not row.on_host and row.problem in chosen]
    if points:
        at = title(board.main)
        numbers = {rung.variant: rung.number for rung in ladder.rungs} if ladder else {}
        drawn = picture(partial(roofline, board, points, numbers), on_page=False)
        yield Heading(2, "Roofline")
        caption = f"{at[0].upper()}{at[1:]}. {COLUMNS}"
        yield Figure(f"roofline{suffix}", drawn, "Roofline", caption, "chart")


def op_times(board: Board, suffix: str) -> Iterator[Block]:
    """A bar chart of op times for Markdown, where tables cannot have bars."""
    timed = _timed(board)
    if timed:
        caption = f"Op time of each problem at {title(board.main)}; shorter is faster."
        overlapping = " and ".join(f"`{entry.variant}`" for entry in timed if entry.overlaps)
        if overlapping:
            caption += f" For {overlapping} it includes only the kernels, not the overlapping copies."
        drawn = picture(partial(plots.op_times, timed), on_page=False)
        yield Figure(f"op_times{suffix}", drawn, "Op times", caption, "nothing")


def _timed(board: Board) -> list[Entry]:
    return [entry for entry in board.at(board.main) if any(row.op_ms for row in entry.rows.values())]


def figures(board: Board, suffix: str) -> Iterator[Block]:
    """Each plot with data, below its heading. ``suffix`` ends the names of the files."""
    at = title(board.main)
    timed = _timed(board)
    rows = [row for entry in timed for row in entry.rows.values()]
    if steps := [entry for entry in timed if _has_parent(board, entry)]:
        yield Heading(2, "What each idea gained")
        caption = (
            f"The speed-up of each variant over its parent, at {at}; without those over the CPU, "
            "and without those that overlap copies with kernels: they gain layer time, not op time."
        )
        yield Figure(f"gains{suffix}", picture(partial(plots.gains, board, steps)), "Speed-ups", caption)
    sweeps = [s for s in board.sweeps if table_of(s.op, s.problem, s.batch) == board.main] or board.sweeps
    if sweeps:
        yield Heading(2, "Parameter sweep")
        caption = (
            "Solid frame: the fastest candidate; dotted frame: the candidate that the variant uses for all "
            "problems."
        )
        yield Figure(f"sweep{suffix}", picture(partial(plots.sweep, sweeps)), "Sweep", caption)
    if overlapped := [row for row in rows if row.streams and row.streams.spans]:
        yield Heading(2, "Copies and kernels over time")
        yield Figure(f"streams{suffix}", picture(partial(plots.streams, overlapped)), "Timeline", OVERLAP)


def _has_parent(board: Board, entry: Entry) -> bool:
    """Whether the variant's parent was measured on the same device."""
    parent = board.entries.get((entry.any_row.parent or "", entry.at))
    if entry.overlaps or parent is None or parent.any_row.on_host:
        return False
    return bool(board.speed_up(entry, parent.variant))
