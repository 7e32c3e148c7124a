"""Draw a comparison: a bar for each of our kernels and each library, and a line for moving the bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from mini_dnn.errors import DataError
from mini_dnn.measuring.files import read_json, refuse
from mini_dnn.report.peers import SCHEMAS, PeerRow, PeersFile, content_of
from mini_dnn.report.tables import number
from mini_dnn.report.theme import WIDTH, Theme

GROUPS = {
    "The two convolutions, sum": ("conv1", "conv2"),
    "The two convolutions with ReLU and max-pool, sum": ("fused1", "fused2"),
    "The whole network, images on the GPU": ("network",),
}
BAR = 0.24  # inches, height of a bar including the space to the next one
GROUP = 0.75  # inches around the bars of a group
PALE = 0.6  # opacity of the libraries' bars


@dataclass(frozen=True)
class Bar:
    """One of our kernels or a library in one precision, each part in its fastest setting."""

    name: str
    ours: bool
    ms: float


def read(file: Path) -> PeersFile:
    """Read a stored record.

    Raises
    ------
    DataError
        The file is not a record, or was written by an older version. The message names file and field.
    """
    content = read_json(file)
    if content.get("schema") not in SCHEMAS:
        raise DataError(
            f"{file} is no comparison that this version draws, whose schemas are {' and '.join(SCHEMAS)}; "
            f"measure again: python benchmarks/peers.py --out {file}"
        )
    found = content_of(content, file)
    if not any(bars(found.rows, parts) for parts in GROUPS.values()):
        refuse(file, "rows have no operation with all its layers, so there is nothing to draw")
    return found


def bars(rows: Iterable[PeerRow], parts: Sequence[str]) -> list[Bar]:
    """Everything that has times for all parts, fastest first."""
    fastest: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in rows:
        if row.kind != "floor" and row.what in parts:
            of_name = fastest.setdefault((row.kind, row.peer, row.precision), {})
            of_name[row.what] = min(row.op_ms, of_name.get(row.what, row.op_ms))
    found = [
        Bar(f"{peer}, {precision}", kind == "ours", sum(times.values()))
        for (kind, peer, precision), times in fastest.items()
        if len(times) == len(parts)
    ]
    return sorted(found, key=lambda bar: bar.ms)


def floor_ms(rows: Iterable[PeerRow], parts: Sequence[str]) -> float | None:
    """The time for moving the bytes of all parts; None if one was not measured."""
    times = {row.what: row.op_ms for row in rows if row.kind == "floor"}
    return sum(times[part] for part in parts) if set(parts) <= set(times) else None


def draw(record: PeersFile, theme: Theme) -> Figure:
    """Draw a chart for each operation, with one logarithmic axis for all."""
    rows = record.rows
    charts = {title: (bars(rows, parts), floor_ms(rows, parts)) for title, parts in GROUPS.items()}
    charts = {title: chart for title, chart in charts.items() if chart[0]}
    heights = [len(found) * BAR + GROUP for found, _ in charts.values()]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.8), layout="constrained")
    every = [bar.ms for found, _ in charts.values() for bar in found]
    every += [floor for _, floor in charts.values() if floor]
    limits = (min(every) / 1.6, max(every) * 1.6)  # a logarithmic axis has no zero at which bars could start
    axes = figure.subplots(len(charts), 1, squeeze=False, height_ratios=heights)[:, 0]
    for chart, (title, (found, floor)) in zip(axes, charts.items(), strict=True):
        _chart(chart, title, found, floor, limits, theme)
    axes[-1].set_xlabel(
        "op time, ms (logarithmic); fp16 of libraries is fp16 in memory: half a layer's bytes"
    )
    ours, libraries = Patch(color=theme.series[0]), Patch(color=theme.soft, alpha=PALE)
    figure.legend([ours, libraries], ["mini_dnn", "libraries"], loc="outside upper right", ncols=2)
    batches = " and ".join(f"{batch:,}" for batch in sorted({row.batch for row in rows}))
    words = f"{record.device}, batch {batches}, {record.started[:10]}; each in its fastest setting"
    figure.suptitle(words, x=0.01, ha="left", size=11)
    return figure


def _chart(
    axes: Axes,
    title: str,
    found: Sequence[Bar],
    floor: float | None,
    limits: tuple[float, float],
    theme: Theme,
) -> None:
    left = limits[0]
    for y, bar in enumerate(found):
        colour, alpha = (theme.series[0], 1.0) if bar.ours else (theme.soft, PALE)
        axes.barh(y, bar.ms - left, 0.72, left, color=colour, alpha=alpha)
        axes.annotate(number(bar.ms), (bar.ms, y), (4, 0), textcoords="offset points", va="center", size=9)
    if floor is not None:
        axes.axvline(floor, color=theme.worse, linestyle=(0, (4, 3)), linewidth=1.5)
        label = f"bytes alone {number(floor)}"
        axes.annotate(
            label, (floor, -0.55), (3, 0), textcoords="offset points", va="bottom", size=9, color=theme.worse
        )
    axes.set(xscale="log", xlim=limits, ylim=(len(found) - 0.4, -1.5), title=title)
    axes.set_yticks(range(len(found)), [bar.name for bar in found])
    for name, bar in zip(axes.get_yticklabels(), found, strict=True):
        name.set_fontweight("bold" if bar.ours else "normal")
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=30))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
