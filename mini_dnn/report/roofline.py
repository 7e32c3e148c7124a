"""The roofline plot.

S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52(4), 2009.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from mini_dnn.report.board import Board, tflops
from mini_dnn.report.rows import Row
from mini_dnn.report.tables import number
from mini_dnn.report.theme import WIDTH, Theme

MARKERS = {"fp32": "o", "tf32": "s", "fp16": "^", "fp16_sum": "v", "3xtf32": "P", "3xfp16": "X"}
LABEL = 8.5  # points
EDGE = 0.02  # fraction of the axis that labels leave free at both ends
LOWERINGS = 12  # how often the lower end of the axis may move down to make room for labels
Line = tuple[tuple[float, float], tuple[float, float]]  # from one point to another
Interval = tuple[float, float]
LINE = 1.35  # line height of a label, as a multiple of its size
WIDE = 0.6  # width of a character of a label, as a multiple of its size
LEADER = 1.35  # where a label's leader line ends, as a multiple of the point's FLOPs per byte


def roofline(board: Board, rows: Sequence[Row], rungs: Mapping[str, int], theme: Theme) -> Figure:
    """Plot TFLOP/s over FLOPs per byte, with the device's ceilings. Every row needs an op time and FLOPs.

    Parameters
    ----------
    rungs
        The numbers of those variants that are rungs of the ladder. They are drawn in colour.
    """
    problems = list(dict.fromkeys(row.problem for row in rows))
    most = max(sum(row.problem == problem for row in rows) for problem in problems)
    height = max(6.5, 1.3 * most * LABEL * LINE / 72 + 1.5)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    rates = [tflops(row) or 0.0 for row in rows]
    intensity = [row.flops / row.min_bytes for row in rows]
    roofs = {name: value for name, value in board.ceilings.items() if name.endswith("_tflops")}
    copy_gbps = board.ceilings.get("copy_gbps", 0.0)
    ridge = max(roofs.values()) / copy_gbps * 1e3 if roofs and copy_gbps else math.inf  # must be visible
    axes.set(xscale="log", yscale="log", xlim=(min(min(intensity) / 8, ridge / 2), max(intensity) * 8))
    axes.set_ylim(min(rates) / 2, max([*rates, *roofs.values()]) * 2)
    axes.set(xlabel="FLOPs per byte moved (logarithmic)", ylabel="TFLOP/s (logarithmic)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.5g}"))
    axes.grid(True)
    lines = _ceilings(axes, board.ceilings.get("copy_gbps"), roofs, theme)
    gap = LABEL * LINE / 72 / (height - 1.3)  # as a fraction of the axis without margins
    columns = [[row for row in rows if row.problem == problem] for problem in problems]
    sides = [-1 if at % 2 == 0 else 1 for at in range(len(problems))]  # of the points, for the names
    for _ in range(LOWERINGS):
        places = [_places(axes, *column, gap, lines) for column in zip(columns, sides, strict=True)]
        if min(map(min, places)) >= EDGE:
            break
        axes.set_ylim(bottom=axes.get_ylim()[0] / 1.3)
    for at, column in enumerate(columns):
        markers = [MARKERS.get(board.compute_type(row), "D") for row in column]
        _points(axes, column, places[at], markers, rungs, sides[at], theme)
    _name_columns(axes, [column[0] for column in columns])
    _legend(figure, {board.compute_type(row) for row in rows}, theme)
    return figure


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places at least ``gap`` apart, in the order of ``wanted`` and as close to it as possible.

    Labels that would overlap are set ``gap`` apart around the mean of their wanted places. All places are
    between ``low`` and ``high``. If that range is too short, they start below ``low``.
    """
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    groups: list[tuple[float, int]] = []  # lowest place, labels
    for at in order:
        place, count = wanted[at], 1
        while groups and groups[-1][0] + groups[-1][1] * gap > place:
            below, below_count = groups.pop()
            total = below_count + count
            place = (below * below_count + (place - below_count * gap) * count) / total
            count = total
        groups.append((place, count))
    ranked = [place + at * gap for place, count in groups for at in range(count)]
    last = len(ranked) - 1
    within = [min(max(place, low + at * gap), high - (last - at) * gap) for at, place in enumerate(ranked)]
    return [place for _, place in sorted(zip(order, within, strict=True))]


def clear_of(places: Sequence[float], gap: float, blocked: Sequence[Sequence[Interval]]) -> list[float]:
    """Move each place down out of the intervals blocked for it, keeping the order and the gap."""
    found, limit = list(places), math.inf
    for at in sorted(range(len(places)), key=places.__getitem__, reverse=True):
        place = min(places[at], limit)
        for low, high in sorted(blocked[at], reverse=True):
            place = low if low < place < high else place
        found[at], limit = place, place - gap
    return found


def _ceilings(axes: Axes, copy_gbps: float | None, roofs: Mapping[str, float], theme: Theme) -> list[Line]:
    """Draw the ceilings and return their lines."""
    lines: list[Line] = []
    (low, high), (bottom, _) = axes.get_xlim(), axes.get_ylim()
    slope = (copy_gbps or 0.0) / 1e3  # TFLOP/s per FLOP per byte
    if slope:
        end = min([high, *(max(roofs.values()) / slope for _ in roofs)])
        lines.append(((low, slope * low), (end, slope * end)))
        x = max(low, bottom / slope) * 1.15
        axes.text(
            x,
            slope * x * 1.2,
            f"memory, {number(copy_gbps)} GB/s",
            color=theme.soft,
            size=9,
            rotation=math.degrees(math.atan(slope)),
            rotation_mode="anchor",
            transform_rotates_text=True,
        )
    for name, value in roofs.items():
        lines.append(((value / slope if slope else low, value), (high, value)))
        label = f"{name.removesuffix('_tflops')}, {number(value)} TFLOP/s"
        axes.annotate(
            label, (high, value), (-4, 3), textcoords="offset points", ha="right", size=9, color=theme.soft
        )
    for line in lines:
        axes.plot(*zip(*line, strict=True), color=theme.soft)
    return lines


def _places(axes: Axes, rows: Sequence[Row], side: int, gap: float, lines: Sequence[Line]) -> list[float]:
    """Heights of the labels as fractions of the axis: near their points, not on other points or ceilings."""
    left, right = axes.get_xlim()
    wanted = [_height(axes, tflops(row) or 0.0) for row in rows]
    blocked = []
    for row in rows:
        width = (len(row.variant) * WIDE * LABEL + 6) / 72 / (WIDTH - 1)  # as a fraction of the axis
        near = row.flops / row.min_bytes * LEADER**side
        start, end = sorted((near, near * (right / left) ** (width * side)))
        met = [
            (_at(line, start), _at(line, end)) for line in lines if line[0][0] <= end and start <= line[1][0]
        ]
        blocked.append([(_height(axes, min(y)) - gap / 2, _height(axes, max(y)) + gap / 2) for y in met])
    return clear_of(spread(wanted, gap, EDGE, 1 - EDGE), gap, blocked)


def _height(axes: Axes, rate: float) -> float:
    bottom, top = (math.log10(limit) for limit in axes.get_ylim())
    return (math.log10(rate) - bottom) / (top - bottom)


def _at(line: Line, x: float) -> float:
    """The height at x of a line on logarithmic axes. Beyond an end of the line, the height of that end."""
    (x0, y0), (x1, y1) = line
    return y0 * (min(max(x, x0), x1) / x0) ** (math.log(y1 / y0) / math.log(x1 / x0))


def _points(
    axes: Axes,
    rows: Sequence[Row],
    places: Sequence[float],
    markers: Sequence[str],
    rungs: Mapping[str, int],
    side: int,
    theme: Theme,
) -> None:
    """Draw the points of one problem, with names on the left (``side=-1``) or the right (``side=1``)."""
    bottom, top = (math.log10(limit) for limit in axes.get_ylim())
    colours = theme.ramp(max(rungs.values(), default=1))
    for row, place, marker in zip(rows, places, markers, strict=True):
        number = rungs.get(row.variant)
        colour = colours[number - 1] if number else theme.soft
        x, rate = row.flops / row.min_bytes, tflops(row) or 0.0
        y = 10 ** (bottom + place * (top - bottom))
        axes.plot([x, x * LEADER**side], [rate, y], color=theme.soft, linewidth=0.6, zorder=2)
        size, over = (9, 4) if number else (5, 3)
        axes.plot(x, rate, marker, color=colour, markersize=size, markeredgecolor=theme.ground, zorder=over)
        axes.annotate(
            f"{number}  {row.variant}" if number else row.variant,
            (x * LEADER**side, y),
            (3 * side, 0),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            size=LABEL,
            color=colour,
            weight="bold" if number else "normal",
            bbox={"facecolor": theme.ground, "edgecolor": "none", "pad": 0.8},
        )


def _name_columns(axes: Axes, rows: Sequence[Row]) -> None:
    """Write the names of the problems above their columns."""
    above = axes.secondary_xaxis("top")
    above.set_xticks([row.flops / row.min_bytes for row in rows], [row.problem for row in rows])
    above.xaxis.set_minor_locator(NullLocator())
    above.tick_params(length=0)
    above.spines["top"].set_visible(False)


def _legend(figure: Figure, compute_types: set[str], theme: Theme) -> None:
    shapes = {name: marker for name, marker in MARKERS.items() if name in compute_types}
    handles = [
        Line2D([], [], marker=marker, linestyle="", color=theme.soft, label=name)
        for name, marker in shapes.items()
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
