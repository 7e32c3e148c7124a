"""Plots of op times, speed-ups, parameter sweeps and overlapped copies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator

from mini_dnn.measuring.records import Span, Sweep
from mini_dnn.report.board import Board, Entry
from mini_dnn.report.overlap import ONE_PART, hidden
from mini_dnn.report.rows import Row
from mini_dnn.report.tables import number
from mini_dnn.report.theme import WIDTH, Theme

BAR = 0.17  # inches, height of a bar including the space to the next one
SPAN_NAMES = {"copy_in": "copy in", "kernel": "kernels", "copy_out": "copy out"}
SWEEPS_ABREAST = 2
LABELLED = 3000  # the widest range of a logarithmic axis that has room for labels at 2 and 5 in each decade
CLOSE = 20  # the widest range with room for more labels than these


def op_times(entries: Sequence[Entry], theme: Theme) -> Figure:
    """Draw a logarithmic bar for each problem of each variant."""
    problems = entries[0].problems
    figure, axes = _bars(len(entries) * len(problems) + len(entries))
    known = [ms for entry in entries for ms in map(entry.op_ms, problems) if ms is not None]
    left = min(known) / 2  # a logarithmic axis has no zero at which bars could start
    thick = 0.8 / len(problems)
    colours = theme.series if len(problems) <= len(theme.series) else theme.ramp(len(problems))
    for at, problem in enumerate(problems):
        label: str | None = problem  # only the first bar gets a label
        for y, entry in enumerate(entries):
            ms = entry.op_ms(problem)
            if ms is None:
                continue
            middle = y - 0.4 + (at + 0.5) * thick
            axes.barh(middle, ms - left, thick * 0.92, left, color=colours[at], label=label)
            label = None
            axes.annotate(number(ms), (ms, middle), (4, 0), textcoords="offset points", va="center", size=8.5)
    axes.set(xscale="log", xlim=(left, max(known) * 2), xlabel="op time, ms (logarithmic)")
    _names(axes, [entry.variant + (" (CPU)" if entry.any_row.on_host else "") for entry in entries])
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(len(problems), 4), borderaxespad=0.2)
    return figure


def gains(board: Board, entries: Sequence[Entry], theme: Theme) -> Figure:
    """Draw how many times as fast as its parent each variant is."""
    figure, axes = _bars(len(entries) * 1.6)
    factors = [board.speed_up(entry, entry.any_row.parent) or 1.0 for entry in entries]
    least, most = min(0.9, *factors), max(1.5, *factors)
    for y, factor in enumerate(factors):
        colour = theme.better if factor >= 1 else theme.worse
        axes.barh(y, factor - 1, 0.7, 1, color=colour)
        axes.annotate(
            f"{number(factor)}×", (max(1, factor), y), (4, 0), textcoords="offset points", va="center", size=9
        )
    axes.axvline(1, color=theme.soft, linewidth=1)
    axes.set(xscale="log", xlim=(least / 1.1, most * 1.15 * (most / least) ** 0.05))
    words = "times as fast as its parent, sum of op times (logarithmic); left of 1 is slower"
    axes.set_xlabel(words, loc="right")  # a long label extends below the names on the left
    _names(axes, [f"{entry.variant}   over {entry.any_row.parent}" for entry in entries])
    return figure


def sweep(sweeps: Sequence[Sweep], theme: Theme) -> Figure:
    """Draw a heat map for each sweep: the op time over both parameters, with a frame around the fastest."""
    lines = -(-len(sweeps) // SWEEPS_ABREAST)
    height = lines * (1.6 + 0.5 * max(len(s.y_values) for s in sweeps))
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    for at, one in enumerate(sweeps, 1):
        _heat_map(figure, figure.add_subplot(lines, SWEEPS_ABREAST, at), one, theme)
    return figure


def _heat_map(figure: Figure, axes: Axes, one: Sweep, theme: Theme) -> None:
    op_ms = np.array(one.op_ms, dtype=float)  # null becomes NaN, an empty cell
    image = axes.imshow(op_ms, cmap="cividis_r", aspect="auto")
    figure.colorbar(image, ax=axes, label="op time, ms")
    axes.set_xticks(range(len(one.x_values)), map(str, one.x_values))
    axes.set_yticks(range(len(one.y_values)), map(str, one.y_values))
    title = f"{one.variant}, {one.problem}, batch {one.batch:,}"
    axes.set(xlabel=one.x_name, ylabel=one.y_name, title=title)
    middle = (np.nanmin(op_ms) + np.nanmax(op_ms)) / 2
    for (y, x), ms in np.ndenumerate(op_ms):
        colour = theme.text if np.isnan(ms) else "#ffffff" if ms > middle else "#1b1f24"
        axes.text(x, y, "–" if np.isnan(ms) else number(ms), ha="center", va="center", color=colour, size=9)
    y, x = np.unravel_index(np.nanargmin(op_ms), op_ms.shape)
    _frame(axes, int(x), int(y), theme.worse, "-")
    if one.best[0] in one.x_values and one.best[1] in one.y_values:
        x, y = one.x_values.index(one.best[0]), one.y_values.index(one.best[1])
        _frame(axes, x, y, "#1b1f24", ":")


def _frame(axes: Axes, x: int, y: int, colour: str, line: str) -> None:
    corner, side = (x - 0.45, y - 0.45), 0.9
    axes.add_patch(Rectangle(corner, side, side, fill=False, edgecolor=colour, linestyle=line, linewidth=2.5))


def streams(rows: Sequence[Row], theme: Theme) -> Figure:
    """Draw when copies and kernels ran on each stream, with one chart for each row of results."""
    counts = [len({span.stream for span in _spans(row)}) for row in rows]
    heights = [0.3 * count + 0.9 for count in counts]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.4), layout="constrained")
    charts = figure.subplots(len(rows), 1, squeeze=False, height_ratios=heights)[:, 0]
    colours = dict(zip(SPAN_NAMES, theme.series, strict=False))
    for axes, row in zip(charts, rows, strict=True):
        numbers = sorted({span.stream for span in _spans(row)})
        bars: dict[tuple[int, str], list[tuple[float, float]]] = {}
        for span in _spans(row):
            bar = span.start_ms, span.end_ms - span.start_ms
            bars.setdefault((numbers.index(span.stream), span.kind), []).append(bar)
        for (y, kind), of_kind in bars.items():
            axes.broken_barh(of_kind, (y - 0.39, 0.78), color=colours[kind], linewidth=0)
        axes.set_yticks(range(len(numbers)), [f"stream {stream}" for stream in numbers])
        axes.set(ylim=(len(numbers) - 0.5, -0.5), xlabel="ms")
        axes.set_xlim(left=0)
        axes.grid(True, axis="x")
        share = hidden(row) + " hidden" * (hidden(row) != ONE_PART)
        axes.set_title(f"{row.variant}, {row.problem}, batch {row.batch:,}: {share}")
    handles = [Patch(color=colour, label=SPAN_NAMES[kind]) for kind, colour in colours.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    return figure


def _spans(row: Row) -> Sequence[Span]:
    return row.streams.spans if row.streams else []


def _bars(count: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, count * BAR + 1.2), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(True, axis="x")
    return figure, axes


def _names(axes: Axes, names: Sequence[str]) -> None:
    """Label the axes: names from top to bottom, and plain numbers below. Set the limits before this call."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    low, high = axes.get_xlim()
    subs = (1, 1.5, 2, 3, 4, 5, 7) if high / low < CLOSE else (1, 2, 5) if high / low < LABELLED else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=30))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.5g}"))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
