"""The section of the report about serving: growth with the batch size, latency, throughput."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle

import numpy as np
from matplotlib import figure as matplotlib_figure
from matplotlib.ticker import FuncFormatter

from mini_dnn.measuring.serving import LIMIT
from mini_dnn.measuring.serving_records import Latency, OpTime, Throughput
from mini_dnn.report.document import NOT_THERE, Block, Figure, Heading, Table, Text, Warnings
from mini_dnn.report.serving import LINEAR, Curve, Serving, curves, latest
from mini_dnn.report.stale import stale_lines
from mini_dnn.report.tables import number, percent
from mini_dnn.report.theme import WIDTH, Theme, picture
from mini_dnn.running.resident import SLOTS

MARKERS = "osD^vP*X"
GROWTH = (
    "Op time against batch size, for random inputs; each result was compared with float64 at both ends of "
    "the batch. Dashed: a straight line, with a cost per op and a cost per entry of the batch, fitted to "
    f"batches of {LINEAR:,} and more. Deviation: the largest distance of these from the line."
)
LATENCY = (
    "The wall-clock time of requests of one image each, from ordinary host memory to probabilities in host "
    "memory: a copy to page-locked memory, from which the first kernel reads the image and to which the "
    "last one writes the answer, the kernels, and the wait. As one graph, all kernels are launched by one "
    "driver call. Op time: only the kernels, with a cold L2 cache. Clocks are read before and after the "
    "requests, because reading them would disturb the requests."
)
THROUGHPUT = (
    "Batches one after the other, from images in pinned host memory to probabilities in host memory; "
    f"{SLOTS} are in flight at a time. Copy: the bytes of the images at the measured rate of copies from "
    "pinned memory on this device. Op: only the kernels. Both overlap, so a batch cannot take less than the "
    f"longer one, and should take at most {LIMIT:.2f} times that."
)


def serving_blocks(servings: Sequence[Serving], suffix: str) -> Iterator[Block]:
    """All results of serving on one device. ``suffix`` ends the names of the files."""
    latency, growth, throughput = (latest(servings, kind) for kind in ("latency", "growth", "throughput"))
    if not (latency or growth or throughput):
        return
    yield Heading(2, "Serving")
    files = [f"`{one.file.name}` ({(one.content.commit or 'no commit')[:10]})" for one in servings]
    yield Text(f"From {', '.join(files)}.")
    doubts = [
        f"`{one.file.name}` was measured with files that differ from its commit"
        for one in servings
        if one.content.dirty
    ]
    doubts += stale_lines((row.variant, row.code_hash) for row in (*latency, *growth, *throughput))
    if doubts:
        yield Warnings(doubts)
    if series := curves(growth):
        yield Heading(3, "Growth with the batch")
        yield Figure(f"growth{suffix}", picture(partial(growth_plot, series)), "Op time per entry", GROWTH)
        yield growth_table(series)
    if latency:
        yield Heading(3, "Latency of one image")
        yield Text(LATENCY)
        yield latency_table(latency)
    if throughput:
        yield Heading(3, "Throughput")
        yield Text(THROUGHPUT)
        yield throughput_table(throughput)


def growth_plot(series: Sequence[Curve], theme: Theme) -> matplotlib_figure.Figure:
    """Plot the op time per entry over the batch size, with the straight lines. Both axes are logarithmic."""
    figure = matplotlib_figure.Figure(figsize=(WIDTH, 5.5), layout="constrained")
    axes = figure.add_subplot()
    for one, colour, marker in zip(series, cycle(theme.series), cycle(MARKERS), strict=False):
        label, line = f"{one.variant}, {one.problem}", one.line
        if line:
            n = np.geomspace(LINEAR, one.batches[-1], 50)
            axes.plot(n, line.at(n) / n * 1e3, "--", color=theme.soft, linewidth=1.5, zorder=3)
            label += f": from {LINEAR:,} within {percent(line.deviation, 1)} of its line"
        us = one.op_ms / one.batches * 1e3
        axes.plot(one.batches, us, marker + "-", color=colour, label=label)
    axes.set(
        xscale="log", yscale="log", xlabel="batch (logarithmic)", ylabel="op time per entry, us (logarithmic)"
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.grid(True)
    axes.legend(loc="upper right")
    return figure


def growth_table(series: Sequence[Curve]) -> Table:
    """Op times by batch size, and the line through the large batches."""
    batches = sorted({int(batch) for one in series for batch in one.batches})
    rows = []
    for one in series:
        times = dict(zip(one.batches.tolist(), one.op_ms.tolist(), strict=True))
        line = one.line
        fit = (
            [_signed(line.op_ms * 1e3), number(line.entry_ms * 1e6), percent(line.deviation, 2)]
            if line
            else []
        )
        cells = [number(times.get(batch)) for batch in batches]
        rows.append([f"`{one.variant}`", one.problem, *cells, *(fit or [NOT_THERE] * 3)])
    heads = [f"batch {batch:,}, ms" for batch in batches]
    return Table(
        ["variant", "problem", *heads, "per op, us", "per entry, ns", "deviation"], rows, text_columns=2
    )


def latency_table(rows: Sequence[Latency]) -> Table:
    """Percentiles of the latency."""
    columns = [
        "variant",
        "sent",
        "way",
        "requests",
        "p50, us",
        "p90, us",
        "p99, us",
        "max, us",
        "op time, us",
    ]
    cells = [
        [
            f"`{row.variant}`",
            row.send,
            "one graph" if row.graph else "call by call",
            f"{row.requests:,}",
            *map(number, (row.p50_us, row.p90_us, row.p99_us, row.max_us)),
            number(None if row.op_ms is None else row.op_ms * 1e3),
            _clock(row),
        ]
        for row in rows
    ]
    return Table([*columns, "SM MHz"], cells, text_columns=3)


def throughput_table(rows: Sequence[Throughput]) -> Table:
    """Images per second, and how close that is to the longer of copies and kernels."""
    columns = ["variant", "sent", "batch", "batches", "images/s", "per batch, ms", "copy, ms", "op, ms"]
    cells = [
        [
            f"`{row.variant}`",
            row.send,
            f"{row.batch:,}",
            f"{row.batches:,}",
            f"{row.images_per_s:,.0f}",
            *map(number, (row.batch_ms, row.copy_ms, row.op_ms)),
            f"{row.over_longer:.3f}",
            _clock(row),
        ]
        for row in rows
    ]
    return Table([*columns, "over the longer", "SM MHz"], cells, text_columns=2)


def _clock(row: OpTime) -> str:
    return f"{row.state.sm_mhz:,}" if row.state else NOT_THERE


def _signed(value: float) -> str:
    return f"-{number(-value)}" if value < 0 else number(value)
