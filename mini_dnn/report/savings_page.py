"""The section of the report about the savings of a smaller type, with its picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Plot

from mini_dnn.measuring.savings import Savings, SavingsFile, SavingsRow
from mini_dnn.report.board import Board
from mini_dnn.report.document import Block, Figure, Heading, Text, Warnings
from mini_dnn.report.savings import CLAIMED, about, doubts, gains_table, problems, rows_table
from mini_dnn.report.tables import number
from mini_dnn.report.theme import WIDTH, Theme, picture

BAR = 0.34  # inches, height of a bar including the space to the next one


def savings_blocks(board: Board, savings: Sequence[Savings], suffix: str) -> Iterator[Block]:
    """The blocks for a board's operation on its device. ``suffix`` ends the name of the picture."""
    for one in savings:
        if (one.content.device.name, one.content.op) != (board.device, board.operation.name):
            continue
        yield Heading(2, "What FP16 saves")
        found = list(doubts(one))
        if found:
            yield Warnings(found)
        yield Text(f"{about(one.content)} From `{one.file.name}`.")
        yield rows_table(one.content)
        yield gains_table(one.content)
        yield Text(CLAIMED)
        yield Figure(
            f"savings{suffix}",
            picture(partial(plot, one.content)),
            "Time, bytes, energy",
            caption(one.content),
        )


def caption(content: SavingsFile) -> str:
    """The caption of the picture."""
    return f"{content.device.name}, problems {problems(content)}."


def plot(content: SavingsFile, theme: Theme) -> Plot:
    """Draw a bar for each program: time, bytes of the operands, energy."""
    rows = content.rows
    figure = Plot(figsize=(WIDTH, len(rows) * BAR + 1.5), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    values = {
        "time of a product, ms": [row.op_ms for row in rows],
        "operands, MB": [row.operand_bytes / 1e6 for row in rows],
        "energy of a product above idle, J": [row.energy_j for row in rows],
    }
    for axes, (label, panel) in zip(panels, values.items(), strict=True):
        _bars(axes, label, panel, rows, theme)
    panels[0].set_yticks(range(len(rows)), [f"{row.program}, {_types(row)}" for row in rows])
    panels[0].set_ylim(len(rows) - 0.4, -0.6)
    figure.suptitle(f"{content.device.name}, {content.started[:10]}", x=0.01, ha="left", size=11)
    return figure


def _types(row: SavingsRow) -> str:
    return row.operands if row.operands == row.products else f"{row.operands} as {row.products}"


def _bars(axes: Axes, label: str, values: Sequence[float], rows: Sequence[SavingsRow], theme: Theme) -> None:
    colours = [theme.series[0] if row.kind == "ours" else theme.soft for row in rows]
    drawn = axes.barh(range(len(rows)), values, 0.72, color=colours)
    axes.bar_label(drawn, [number(value) for value in values], padding=4, size=9)
    axes.set(xlabel=label, xlim=(0, 1.25 * max(values)))
    axes.grid(True, axis="x")
    axes.tick_params(axis="y", length=0)
