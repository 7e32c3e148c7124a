"""The roofline plot.

S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52(4), 2009.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from mini_dnn.report.board import Board, tflops
from mini_dnn.report.rows import Row
from mini_dnn.report.tables import number
from mini_dnn.report.theme import WIDTH, Theme

MARKERS = {"fp32": "o", "tf32": "s", "fp16": "^", "fp16_sum": "v"}
MARKERS |= {"3xtf32": "P", "3xfp16": "X", "6xfp16": "D"}
LABEL = 8.5  # points, of the label of a point
NAME = 10  # points, of the name of a column
EDGE = 0.02  # fraction of the axis that labels leave free at both ends
LOWERINGS = 12  # how often the lower end of the axis may move down to make room for labels
Line = tuple[tuple[float, float], tuple[float, float]]  # from one point to another
Interval = tuple[float, float]
LINE = 1.35  # line height of a label, as a multiple of its size
WIDE = 0.6  # width of a character of a label, as a multiple of its size
CHARACTERS = (WIDTH - 1) * 72 / (WIDE * LABEL)  # of a label that are as wide as the axis
LEADER = 1.35  # where a label's leader line ends, as a multiple of the point's FLOPs per byte


@dataclass(frozen=True)
class Column:
    """The points of one problem. Their labels are on the left (``side=-1``) or on the right (``side=1``)."""

    rows: Sequence[Row]
    labels: Sequence[str]  # empty where there is no room before the next column
    side: int

    @property
    def labelled(self) -> list[tuple[Row, str]]:
        """The points that have labels."""
        return [(row, label) for row, label in zip(self.rows, self.labels, strict=True) if label]


def roofline(board: Board, rows: Sequence[Row], rungs: Mapping[str, int], theme: Theme) -> Figure:
    """Plot TFLOP/s over FLOPs per byte, with the device's ceilings. Every row needs an op time and FLOPs.

    Parameters
    ----------
    rungs
        The numbers of those variants that are rungs of the ladder. They are drawn in colour.
    """
    most = max(Counter(row.problem for row in rows).values())
    height = max(6.5, 1.3 * most * LABEL * LINE / 72 + 1.5)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    rates = [tflops(row) or 0.0 for row in rows]
    intensity = list(map(_intensity, rows))
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
    columns = _columns(axes, rows, rungs)
    for _ in range(LOWERINGS):
        places = [_places(axes, column, gap, lines) for column in columns]
        if min(chain.from_iterable(places)) >= EDGE:
            break
        axes.set_ylim(bottom=axes.get_ylim()[0] / 1.3)
    for column, of_column in zip(columns, places, strict=True):
        _points(axes, column, of_column, board, rungs, theme)
    _name_columns(axes, columns)
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


def stagger(spans: Sequence[Interval]) -> list[int]:
    """Return the lowest line on which each interval has room. The intervals start in increasing order."""
    ends: list[float] = []  # of the last interval on each line
    found = []
    for start, end in spans:
        line = next((at for at, taken in enumerate(ends) if taken < start), len(ends))
        ends[line : line + 1] = [end]
        found.append(line)
    return found


def _intensity(row: Row) -> float:
    """FLOPs per byte."""
    return row.flops / row.min_bytes


def _columns(axes: Axes, rows: Sequence[Row], rungs: Mapping[str, int]) -> list[Column]:
    """Group points by problem, from left to right, with the labels for which there is room."""
    of_problem: dict[str, list[Row]] = {}
    for row in sorted(rows, key=_intensity):
        of_problem.setdefault(row.problem, []).append(row)
    groups = list(of_problem.values())
    left, right = axes.get_xlim()
    found = []
    for at, group in enumerate(groups):
        between = 0 < at < len(groups) - 1  # with labels on the right, where the next column follows
        free = _intensity(groups[at + 1][0]) / _intensity(group[0]) / LEADER if between else math.inf
        room = math.log(free) / math.log(right / left) * CHARACTERS - 2
        labels = [_label(row.variant, rungs.get(row.variant), room) for row in group]
        found.append(Column(group, labels, 1 if at else -1))
    return found


def _label(variant: str, number: int | None, room: float) -> str:
    """The number and the name of a variant, or only its number or nothing if there is room for no more."""
    full = f"{number}  {variant}" if number else variant
    short = str(number) if number else ""
    return full if len(full) <= room else short if len(short) <= room else ""


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


def _places(axes: Axes, column: Column, gap: float, lines: Sequence[Line]) -> list[float]:
    """Heights of the labels as fractions of the axis: near their points, not on other points or ceilings."""
    left, right = axes.get_xlim()
    wanted = [_height(axes, tflops(row) or 0.0) for row, _ in column.labelled]
    blocked = []
    for row, label in column.labelled:
        width = len(label) / CHARACTERS + 6 / 72 / (WIDTH - 1)  # as a fraction of the axis
        near = _intensity(row) * LEADER**column.side
        start, end = sorted((near, near * (right / left) ** (width * column.side)))
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
    column: Column,
    places: Sequence[float],
    board: Board,
    rungs: Mapping[str, int],
    theme: Theme,
) -> None:
    """Draw the points of one problem and their labels."""
    bottom, top = (math.log10(limit) for limit in axes.get_ylim())
    ramp = theme.ramp(max(rungs.values(), default=1))
    colours = {name: ramp[number - 1] for name, number in rungs.items()}
    side = column.side
    for row in column.rows:
        marker = MARKERS.get(board.compute_type(row), "D")
        size, over = (9, 4) if row.variant in rungs else (5, 3)
        look: Any = {"color": colours.get(row.variant, theme.soft), "markeredgecolor": theme.ground}
        axes.plot(_intensity(row), tflops(row) or 0.0, marker, markersize=size, zorder=over, **look)
    for (row, label), place in zip(column.labelled, places, strict=True):
        x, y = _intensity(row), 10 ** (bottom + place * (top - bottom))
        axes.plot([x, x * LEADER**side], [tflops(row) or 0.0, y], color=theme.soft, linewidth=0.6, zorder=2)
        axes.annotate(
            label,
            (x * LEADER**side, y),
            (3 * side, 0),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            size=LABEL,
            color=colours.get(row.variant, theme.soft),
            weight="bold" if row.variant in rungs else "normal",
            bbox={"facecolor": theme.ground, "edgecolor": "none", "pad": 0.8},
        )


def _name_columns(axes: Axes, columns: Sequence[Column]) -> None:
    """Write the names of the problems above their columns, on several lines if columns are close."""
    left, right = axes.get_xlim()
    found = [(_intensity(column.rows[0]), column.rows[0].problem) for column in columns]
    middles = [math.log(x / left) / math.log(right / left) * CHARACTERS for x, _ in found]
    halves = [0.5 * len(name) * NAME / LABEL + 1 for _, name in found]
    lines = stagger([(at - half, at + half) for at, half in zip(middles, halves, strict=True)])
    above = axes.secondary_xaxis("top")
    names = [name + "\n" * line for (_, name), line in zip(found, lines, strict=True)]
    above.set_xticks([x for x, _ in found], names, size=NAME)
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
