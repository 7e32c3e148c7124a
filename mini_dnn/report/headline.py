"""The opening of each part of the report: its result in one sentence, and the ladder."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import partial

from matplotlib.figure import Figure as Plot
from matplotlib.ticker import FuncFormatter

from mini_dnn.measuring.batches import Batches
from mini_dnn.report.board import Board
from mini_dnn.report.document import NOT_THERE, Block, Figure, Heading, Table, Text, slug
from mini_dnn.report.ladder import Ladder, Rung, ladder_of, notes
from mini_dnn.report.rivals import fastest
from mini_dnn.report.tables import number, percent, times
from mini_dnn.report.theme import WIDTH, Theme, picture

ABOUT = (
    "Each rung improves on the previous one: one idea removed the limit of the previous rung. The lessons "
    "explain the limits. The scale is logarithmic."
)
DUNDER = re.compile(r"\b__\w+__\b")  # names such as __ldg, which Markdown would set in bold
LEAST = 2  # measured rungs that a ladder must have
STEP = 0.62  # inches, height of a rung in the picture
TEXT = 6.6  # inches for the words next to the scale
DASHES = (0, (4, 3))


def sentence(board: Board) -> str:
    """The result of a board in one sentence, or an empty string if there is no ladder of measured rungs."""
    ladder = ladder_of(board)
    if ladder is None:
        return ""
    first, last = ladder.measured[0], ladder.measured[-1]
    first_ms, last_ms = ladder.op_ms(first), ladder.op_ms(last)
    assert first_ms
    assert last_ms
    text = f"`{last.variant}` takes {number(last_ms)} ms for {ladder.place}"
    parts = [f"{times(first_ms / last_ms)} as fast as `{first.variant}`"] if first != last else []
    share = _share(ladder, last)
    if share is not None:
        parts.append(f"{percent(share)} of the roofline")
    rival = fastest(ladder)
    rival_ms = rival.sum_of(ladder.problems) if rival else None
    if rival and rival_ms:
        parts.append(f"{times(rival_ms / last_ms)} as fast as the fastest library, {rival.name}")
    listed = ", ".join(parts[:-1]) + ", and " * (len(parts) > 1) + parts[-1] if parts else ""
    return f"{text}{': ' * bool(parts)}{listed}."


def glance(headings: Mapping[str, Board]) -> Table:
    """A table with a row for each part of the report."""
    rows = []
    for heading, board in headings.items():
        link = f"[{heading.partition(': ')[0]}](#{slug(heading)})"
        ladder = ladder_of(board)
        if ladder is None:
            rows.append([link, *[NOT_THERE] * 6])
            continue
        first, last = ladder.measured[0], ladder.measured[-1]
        first_ms, last_ms, rival = ladder.op_ms(first), ladder.op_ms(last), fastest(ladder)
        rival_ms = rival.sum_of(ladder.problems) if rival else None
        rows.append(
            [
                link,
                f"`{last.variant}`",
                ladder.place,
                number(last_ms),
                times(first_ms / last_ms) if first != last and first_ms and last_ms else NOT_THERE,
                percent(_share(ladder, last)),
                times(rival_ms / last_ms) if rival_ms and last_ms else NOT_THERE,
            ]
        )
    columns = ["operation", "fastest rung", "problems", "op time, ms", "over the first rung measured"]
    return Table([*columns, "of the roofline", "over the fastest library"], rows, text_columns=3)


def not_measured(boards: Collection[Board], batches: Iterable[Batches]) -> list[Block]:
    """The ladders that have no op times, the command that measures them, and other files about them."""
    lacking = [op for op in notes() if op not in {board.operation.name for board in boards}]
    if not lacking:
        return []
    names = ", ".join(f"`{op}`" for op in lacking)
    command = f"run.py bench {lacking[0]} --out benchmarks/results/NAME.json"
    text = f"There are no op times yet of {names}; on a GPU: `{command}`."
    if files := ", ".join(f"`{one.file.name}`" for one in batches if one.content.op in lacking):
        text += f" Times by batch are shown only with op times, so these files are left out: {files}."
    return [Text(text)]


def ladder_blocks(board: Board, suffix: str) -> list[Block]:
    """The ladder below its heading, or nothing if fewer than two rungs have a time."""
    ladder = ladder_of(board)
    if ladder is None or len(ladder.measured) < LEAST:
        return []
    drawn = picture(partial(plot, ladder), on_page=False)
    figure = Figure(f"ladder{suffix}", drawn, "The ladder", f"The ladder at {ladder.place}.", "nothing")
    return [Heading(2, "The ladder"), Text(ABOUT), figure, ladder_table(ladder)]


def ladder_table(ladder: Ladder) -> Table:
    """A row for each rung: its time, its gain, the limit of the rung before, and the idea that removed it."""
    rows, limit = [], ""
    for rung in ladder.rungs:
        op_ms = ladder.op_ms(rung)
        rows.append(
            [
                f"{rung.number}. `{rung.variant}`",
                "not measured" if op_ms is None else number(op_ms),
                times(ladder.gain(rung)),
                limit or NOT_THERE,
                DUNDER.sub(r"`\g<0>`", rung.idea) or NOT_THERE,
            ]
        )
        limit = rung.limit
    if limit:
        rows.append(["what limits the last rung", "", "", limit, ""])
    columns = ["rung", "op time, ms", "speed-up", "what limited the rung before", "what removed it"]
    return Table(columns, rows, text_columns=1, words=frozenset({3, 4}), name="ladder")


def _share(ladder: Ladder, rung: Rung) -> float | None:
    """The fraction of the roofline that a rung reaches."""
    op_ms, roof_ms = ladder.op_ms(rung), ladder.roof_ms(rung.entry) if rung.entry else None
    return roof_ms / op_ms if op_ms and roof_ms else None


def plot(ladder: Ladder, theme: Theme) -> Plot:
    """Draw the ladder as steps along a logarithmic scale, with words next to each step."""
    rungs = ladder.measured
    times_ms = [ladder.op_ms(rung) or 0.0 for rung in rungs]
    roof_ms = ladder.roof_ms(rungs[-1].entry) if rungs[-1].entry else None
    figure = Plot(figsize=(WIDTH + TEXT / 2, len(rungs) * STEP + 1.2), layout="constrained")
    axes = figure.add_subplot()
    colours = theme.ramp(len(ladder.rungs))
    for y, (rung, op_ms) in enumerate(zip(rungs, times_ms, strict=True)):
        colour = colours[rung.number - 1]
        before = times_ms[y - 1] if y else op_ms
        axes.plot([before, op_ms], [y, y], color=colour, linewidth=5, solid_capstyle="butt", alpha=0.45)
        if y:
            axes.plot([before, before], [y - 1, y], color=theme.soft, linewidth=0.8, zorder=1)
        axes.plot(op_ms, y, "o", color=colour, markersize=15)
        axes.annotate(str(rung.number), (op_ms, y), ha="center", va="center", color=theme.ground, size=9)
        gain = ladder.gain(rung)
        label = f"{number(op_ms)} ms" + (f"   {times(gain)}" if gain else "")
        box = {"facecolor": theme.ground, "edgecolor": "none", "pad": 0.8}
        axes.annotate(label, (op_ms, y), (0, 12), textcoords="offset points", ha="center", size=9, bbox=box)
    if roof_ms:
        axes.axvline(roof_ms, color=theme.worse, linestyle=DASHES, linewidth=1.2, zorder=0)
    low = min([*times_ms, *([roof_ms] if roof_ms else [])])
    axes.set(xscale="log", xlim=(low / 2, max(times_ms) * 2), ylim=(len(rungs) - 0.4, -0.9))
    roofline = f"; dashed: the roofline, {number(roof_ms)} ms" if roof_ms else ""
    words = f"op time of {ladder.place.replace('`', '')}, ms (logarithmic){roofline}"
    axes.set_xlabel(words, loc="right")  # a long label extends below the words on the left
    axes.set_yticks(range(len(rungs)), [_words(rung) for rung in rungs], size=8.5)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.5g}"))
    axes.grid(True, axis="x")
    return figure


def _words(rung: Rung) -> str:
    limit = f"\nlimited by {rung.limit}" if rung.limit else ""
    return f"{rung.number}  {rung.variant}{limit}"
