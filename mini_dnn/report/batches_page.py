"""The section of the report about a whole network at several batch sizes, with its pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Plot
from matplotlib.ticker import FixedLocator, FuncFormatter

from mini_dnn.measuring.batches import Batches, BatchesRow
from mini_dnn.report.batches import (
    ByBatch,
    about,
    by_batch,
    doubts,
    libraries_table,
    memory_table,
    rates_table,
    roles,
    short,
    times_table,
    work_table,
)
from mini_dnn.report.board import Board
from mini_dnn.report.document import Block, Figure, Folded, Heading, Text, Warnings
from mini_dnn.report.steps import about as about_steps
from mini_dnn.report.steps import passes, steps_table
from mini_dnn.report.theme import WIDTH, Theme, picture

MARKERS = "os^Dv<>P"
COLUMNS = 4  # panels side by side
TIMES = (
    "Each variant is one CUDA graph per batch, timed with images and scores on the GPU; round trips count. "
    "Figures are medians of several turns. Dotted: a program on the CPU. Dashed: a library in one "
    "setting, on the same GPU."
)
WORK = (
    "A round trip copies a buffer to page-locked memory on the host and back. The time with copies also "
    "includes those of images and scores from and to page-locked memory, one after the other. The share of "
    "copies is the part of this time that disappears if nothing is copied."
)
MEMORY = (
    "The buffers of a plan by role. Activations: results of layers. Workspace: what kernels of other ladders "
    "need. Taken from the GPU, a dash in the plot: the decrease of free memory, which also includes the code "
    "of the kernels and the rounding of allocations."
)
LIBRARIES = (
    "Each library took turns with a variant in the same run, with the same weights and images. Over ours: "
    "how many times as long as the fastest variant of this run it takes."
)


def batches_blocks(board: Board, found: Sequence[Batches], suffix: str) -> Iterator[Block]:
    """The blocks for a board's operation by batch size. ``suffix`` ends the names of the pictures."""
    networks = by_batch(board, found)
    if networks:
        yield Heading(2, "By batch")
    for at, network in enumerate(networks, 1):
        yield from _network(network, suffix if at == 1 else f"{suffix}-{at}")


def _network(network: ByBatch, suffix: str) -> Iterator[Block]:
    yield Text(about(network))
    if found := list(doubts(network)):
        yield Warnings(found)
    ends = list(dict.fromkeys([network.batches[0], network.batches[-1]]))
    if len(network.batches) > 1:
        yield Heading(3, "Latency and images a second")
        words = "Latency and images a second by batch"
        yield Figure(f"batches{suffix}", picture(partial(times_plot, network)), words, TIMES)
        yield times_table(network)
        yield Folded("Images a second", [rates_table(network)])
    if work_table(network, ends).rows:
        yield Heading(3, "Launches and copies")
        yield Text(WORK)
        yield work_table(network, ends[-1:])
        yield Folded("Launches and copies with every batch", [work_table(network, network.batches)])
    if roles(network):
        yield Heading(3, "Memory by batch")
        words = "Memory by batch and role"
        yield Figure(f"memory{suffix}", picture(partial(memory_plot, network)), words, MEMORY)
        yield Folded("Memory with every batch", [memory_table(network, network.batches)])
    if network.libraries:
        yield Heading(3, "Libraries in the same run")
        programs = dict.fromkeys(
            f"PyTorch {one.content.versions['torch']}"
            for one in network.runs
            if "torch" in one.content.versions
        )
        yield Text(f"{LIBRARIES} {', '.join(programs)}{'.' * bool(programs)}".strip())
        yield libraries_table(network)
    every = (one for file in network.files for one in passes(file))
    of_launches = [one for one in every if one.problem == network.problem]
    if of_launches:
        yield Heading(3, "Launch by launch")
    for one in of_launches:
        yield Text(about_steps(one))
        yield steps_table(one)


def times_plot(network: ByBatch, theme: Theme) -> Plot:
    """Plot latency and images per second over the batch size. All axes are logarithmic."""
    figure = Plot(figsize=(WIDTH, 6.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    colours = theme.ramp(len(network.ours))
    lines = [
        *(
            (short(name), of, "-", colour)
            for (name, of), colour in zip(network.ours.items(), colours, strict=True)
        ),
        *((name, of, ":", theme.text) for name, of in network.host.items()),
        *(
            (name, of, "--", colour)
            for (name, of), colour in zip(network.libraries.items(), cycle(theme.series), strict=False)
        ),
    ]
    for (label, of, style, colour), marker in zip(lines, cycle(MARKERS), strict=False):
        look = {"linestyle": style, "marker": marker, "color": colour, "markersize": 5, "linewidth": 1.4}
        left.plot(list(of), [row.median_ms for row in of.values()], label=label, **look)
        right.plot(list(of), [row.images_per_s for row in of.values()], **look)
    batches = sorted(set(chain.from_iterable(of for _, of, *_ in lines)))
    for axes, label in ((left, "ms a batch (logarithmic)"), (right, "images a second (logarithmic)")):
        axes.set(xscale="log", yscale="log", xlabel="batch (logarithmic)", ylabel=label)
        axes.set_xticks(batches, [f"{batch:,}" for batch in batches])
        axes.xaxis.set_minor_locator(FixedLocator([]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axes.grid(True)
    figure.legend(loc="outside lower left", ncols=3, fontsize=9)
    return figure


def memory_plot(network: ByBatch, theme: Theme) -> Plot:
    """Plot the memory: a panel for each variant, a stacked bar for each batch size, a piece for each role.

    Each bar also shows how much memory was taken from the GPU.
    """
    programs = {
        name: {batch: row for batch, row in of.items() if row.memory} for name, of in network.ours.items()
    }
    programs = {name: of for name, of in programs.items() if of}
    lines = -(-len(programs) // COLUMNS)
    figure = Plot(figsize=(WIDTH, 0.8 + 2.1 * lines), layout="constrained")
    panels = figure.subplots(lines, COLUMNS, sharex=True, sharey=True, squeeze=False)
    for axes in panels.flat[len(programs) :]:
        axes.set_axis_off()
    for axes, (name, of) in zip(panels.flat, programs.items(), strict=False):
        _stack(axes, network, of, theme)
        axes.set_title(short(name))
    for axes in panels[:, 0]:
        axes.set_ylabel("MB")
    for axes in panels.flat[max(0, len(programs) - COLUMNS) : len(programs)]:
        axes.set_xlabel("batch")
    figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="outside lower left", ncols=6, fontsize=9)
    return figure


def _stack(axes: Axes, network: ByBatch, of: Mapping[int, BatchesRow], theme: Theme) -> None:
    at = [network.batches.index(batch) for batch in of]
    base = np.zeros(len(of))
    for role, colour in zip(roles(network), cycle(theme.series), strict=False):
        heights = np.array([(row.memory or {}).get(role, 0) for row in of.values()]) / 1e6
        axes.bar(at, heights, 0.7, bottom=base, color=colour, label=role)
        base = base + heights
    taken = [np.nan if row.taken_bytes is None else row.taken_bytes / 1e6 for row in of.values()]
    axes.plot(at, taken, "_", color=theme.text, markersize=9, label="taken from the GPU")
    axes.set_xticks(range(len(network.batches)), [f"{batch:,}" for batch in network.batches])
    axes.grid(True, axis="y")
