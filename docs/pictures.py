"""Draw the pictures of the documentation: ``python docs/pictures.py [FOLDER]``; FOLDER is docs by default."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from mini_dnn import ops
from mini_dnn.datasets import draw
from mini_dnn.nn.models import lenet
from mini_dnn.paths import ROOT
from mini_dnn.report.batches import of_folder
from mini_dnn.report.batches_page import times_plot
from mini_dnn.report.board import Board, Entry, boards
from mini_dnn.report.load import RESULTS, load
from mini_dnn.report.rows import Row, title
from mini_dnn.report.tables import number
from mini_dnn.report.theme import picture

DOCS = Path(__file__).resolve().parent
STYLE = {
    "svg.fonttype": "none",  # text stays text: small files, and tests can read it
    "svg.hashsalt": "mini_dnn",  # the same picture is the same file
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 12,
}
INK, QUIET, PAPER = "#1f2933", "#52606d", "#ffffff"  # a white card that is readable on light and dark pages
GPU, CPU, EDGE = "#2f7ed8", "#9aa5b1", "#ffffff"
ROW_TINTS = ("#cfe2f7", "#fde5c0", "#d2ecd8", "#eed7ec")
CELL = 28  # side of a matrix element
GAP = 62  # between two tensors, in pixels of the network's images, like all lengths below
DEPTH = {1: 0.0, 4: 6.0, 16: 2.6}  # distance from one channel's plane to the next


def main(folder: Path = DOCS) -> None:
    """Draw every picture."""
    with mpl.rc_context(STYLE):
        save(network(), folder / "network.svg")
        save(sliding_window(), folder / "sliding_window.svg")
        files = sorted(RESULTS.glob("*.json"))
        results = load(files) if files else None
        found = boards(results) if results else []
        board = measured(found)
        times = op_times(board) if board else nothing_measured()
        save(times, folder / "op_times.svg")
        for page in sorted(ROOT.glob("networks/*/README.md")) if results else ():
            place = page.parent.name
            if by_batch := of_folder(found, results.batches, f"networks/{place}"):
                path = folder / f"{place}.svg"
                path.write_bytes(picture(partial(times_plot, by_batch)).light_svg)
                print(f"drawn: {path}")


def measured(found: Sequence[Board]) -> Board | None:
    """The results of the default operation on a GPU, if there are any."""
    of_default = [board for board in found if board.operation.name == ops.DEFAULT]
    return next((board for board in of_default if "copy_gbps" in board.ceilings and timed(board)), None)


def timed(board: Board) -> list[Entry]:
    """The variants with op times on a GPU, slowest first."""
    entries = [entry for entry in board.at(board.main) if entry.sum_ms and not entry.any_row.on_host]
    return sorted(entries, key=lambda entry: entry.sum_ms or 0.0, reverse=True)


def save(figure: Figure, path: Path) -> None:
    """Write a picture without a date, so that the same picture gives the same file."""
    figure.savefig(path, facecolor="none", metadata={"Date": None} if path.suffix == ".svg" else None)
    print(f"drawn: {path}")


def network() -> Figure:
    """LeNet: its arrays to scale, except for the vectors, and its layers as arrows."""
    layers = lenet.build(np.random.default_rng(0)).layers
    shapes, shape = {}, (1, 1, 86, 86)
    for name, layer in layers.items():
        shape = layer.output_shape(shape)
        shapes[name] = shape[1:]
    figure, axes = card(width=13.2, height=3.3)
    image = draw(14)[0][13, 0]
    axes.imshow(image, cmap="gray", extent=(0, 86, -43, 43), vmin=0, vmax=255, zorder=2)
    axes.add_patch(Rectangle((0, -43), 86, 86, fill=False, edgecolor=QUIET, zorder=3))
    caption(axes, 43, "input", (1, 86, 86))
    right = 86.0
    for name, words, colour in (
        ("relu1", ("conv1", "7×7", "ReLU"), GPU),
        ("pool1", ("max-pool", "2×2"), CPU),
        ("relu2", ("conv2", "7×7", "ReLU"), GPU),
        ("pool2", ("max-pool", "4×4, ceil"), CPU),
    ):
        arrow(axes, right, words, colour)
        right = planes(axes, right + GAP, shapes[name], colour)
    for name, words, height in (
        ("flatten", ("flatten",), 116.0),
        ("relu3", ("linear", "ReLU"), 64.0),
        ("softmax", ("linear", "softmax"), 36.0),
    ):
        arrow(axes, right, words, CPU)
        right = vector(axes, right + GAP, shapes[name], height)
    axes.text(right / 2, -104, "blue: CUDA kernels of a variant; grey: NumPy", color=QUIET, ha="center")
    axes.set_xlim(-22, right + 26)
    axes.set_ylim(-116, 88)
    return figure


def card(width: float, height: float) -> tuple[Figure, Axes]:
    """Make a figure, in inches: a white card with round corners, and axes without ticks on it."""
    figure = Figure(figsize=(width, height))
    box = FancyBboxPatch(
        (0.03, 0.03),
        width - 0.06,
        height - 0.06,
        boxstyle="round,pad=0,rounding_size=0.1",
        facecolor=PAPER,
        edgecolor="#cbd2d9",
        transform=figure.dpi_scale_trans,
        zorder=-1,
    )
    figure.add_artist(box)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_aspect("equal")
    return figure, axes


def planes(axes: Axes, left: float, shape: tuple[int, ...], colour: str) -> float:
    """Draw channels one behind the other, the last one in front. Return the right end of the drawing."""
    channels, height, width = shape
    step = DEPTH[channels]
    span = step * (channels - 1)
    for i in range(channels):
        x, y = left + i * step, -height / 2 + span / 2 - i * step
        axes.add_patch(
            Rectangle((x, y), width, height, facecolor=colour, edgecolor=EDGE, linewidth=0.7, zorder=2 + i)
        )
    caption(axes, left + (width + span) / 2, "", shape)
    return left + width + span


def vector(axes: Axes, left: float, shape: tuple[int, ...], height: float) -> float:
    """Draw a vector as a bar that is not to scale."""
    axes.add_patch(Rectangle((left, -height / 2), 9, height, facecolor=CPU, edgecolor=EDGE, zorder=2))
    caption(axes, left + 4.5, "", shape)
    return left + 9


def arrow(axes: Axes, left: float, words: tuple[str, ...], colour: str) -> None:
    """Draw a layer: an arrow across the gap that begins at ``left``, its name above and the rest below."""
    x, ink = left + GAP / 2, INK if colour == GPU else QUIET
    tip = [(left + GAP - 8, 0), (left + GAP - 17, 5), (left + GAP - 17, -5)]
    axes.plot([left + 8, left + GAP - 17], [0, 0], color=colour, linewidth=2, solid_capstyle="butt")
    axes.add_patch(Polygon(tip, facecolor=colour, edgecolor="none"))
    axes.text(x, 8, words[0], ha="center", color=ink, weight="bold" if colour == GPU else "normal")
    axes.text(x, -9, "\n".join(words[1:]), ha="center", va="top", color=ink, linespacing=1.3)


def caption(axes: Axes, x: float, name: str, shape: tuple[int, ...]) -> None:
    """Write an array's name and shape below it."""
    text = "×".join(map(str, shape)) + (f"\n{name}" if name else "")
    axes.text(x, -66, text, ha="center", va="top", color=INK, linespacing=1.3)


def sliding_window() -> Figure:
    """The unrolled matrix of m3/sliding_window: an image of 4 × 5, a filter of 2 × 3, with its windows."""
    figure, axes = card(width=13.2, height=5.6)
    image = np.array(list("abcdefghijklmnopqrst")).reshape(4, 5)
    R, S, P, Q = 2, 3, 3, 3
    cells(axes, 30, 250, image, ROW_TINTS)
    axes.text(30, 268, "x: H = 4, W = 5", color=INK, weight="bold")
    rows = [image[h, s : s + Q] for h in range(4) for s in range(S)]
    cells(axes, 300, 380, np.array(rows), [tint for tint in ROW_TINTS for _ in range(S)])
    axes.text(300, 398, "x_tile: row h S + s is image row h, shifted by s", color=INK, weight="bold")
    for i in range(4 * S):
        label = f"h = {i // S}, s = {i % S}"
        axes.text(290, 380 - (i + 0.5) * CELL, label, ha="right", va="center", color=QUIET, size=11)
    for p in range(P):
        x, top, bottom = 398 + 57 * p, 380 - p * S * CELL, 380 - (p * S + R * S) * CELL
        axes.plot([x, x + 9, x + 9, x], [top - 3, top - 3, bottom + 3, bottom + 3], color=GPU, linewidth=2.5)
        axes.text(x + 15, (top + bottom) / 2, f"p = {p}", va="center", color=GPU, weight="bold")
    filters = [[f"{r},{s}" for r in range(R) for s in range(S)]]
    axes.text(580, 338, "output row p, Q = 3 pixels, all channels:", color=INK, weight="bold")
    axes.text(580, 312, "y[p]  =  w  ×  window p", color=GPU, weight="bold", size=15)
    cells(axes, 640, 290, np.array(filters), ["#e4e7eb"])
    axes.text(628, 290 - CELL / 2, "w", ha="right", va="center", color=INK, weight="bold")
    axes.text(640, 250, "weights in the order (r, s): K = R S = 6", color=QUIET)
    lines = (
        "A window is K = 6 whole rows of x_tile.",
        "The next output row's window starts S = 3 rows",
        "further down: it is memory that is there already.",
        "",
        "Stored here:  H S × Q = 12 × 3 = 36 values.",
        "Textbook:  R S × P Q = 6 × 9 = 54 values.",
    )
    axes.text(580, 218, "\n".join(lines), va="top", color=INK, linespacing=1.5)
    axes.set_xlim(0, 960)
    axes.set_ylim(12, 420)
    return figure


def cells(axes: Axes, left: float, top: float, values: np.ndarray, tints: Sequence[str]) -> None:
    """Draw a matrix with a separate tint for each row."""
    for (i, j), value in np.ndenumerate(values):
        x, y = left + j * CELL, top - (i + 1) * CELL
        axes.add_patch(Rectangle((x, y), CELL, CELL, facecolor=tints[i], edgecolor=EDGE, linewidth=1.2))
        axes.text(x + CELL / 2, y + CELL / 2, str(value), ha="center", va="center", color=INK, size=11)


def nothing_measured() -> Figure:
    """Draw a placeholder for the op times until there are results."""
    figure, axes = card(13.2, 0.9)
    words = "no op times yet: run.py bench --out benchmarks/results/NAME.json measures them on a GPU"
    axes.text(0, 0, words, ha="center", va="center", color=QUIET)
    axes.set(xlim=(-1, 1), ylim=(-0.05, 0.05))
    return figure


def op_times(board: Board) -> Figure:
    """Op times on a GPU, with one panel per problem, and the time of a copy of the same bytes."""
    entries = timed(board)
    height = 1.5 + 0.3 * len(entries)
    figure, _ = card(13.2, height)
    for at, problem in enumerate(board.problems(board.main)):
        axes = figure.add_axes((0.17 + 0.415 * at, 0.75 / height, 0.38, 1 - 1.35 / height))
        bars(axes, [entry.rows[problem] for entry in entries], board.ceilings["copy_gbps"])
        names = [entry.variant for entry in entries] if at == 0 else []
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel(f"{problem}, op time in ms (logarithmic)", color=INK)
    words = f"{board.device}; {title(board.main)}; dashed: each input and output moved once"
    figure.text(0.5, 1 - 0.3 / height, words, ha="center", color=QUIET)
    return figure


def bars(axes: Axes, rows: Sequence[Row], copy_gbps: float) -> None:
    """Draw one problem's op times, and the time in which a plain copy moves the same number of bytes."""
    times = [row.op_ms or 0.0 for row in rows]  # entries with a sum have every op time
    floor = rows[0].min_bytes / copy_gbps / 1e6
    left = min(*times, floor) / 2  # bars cannot start at zero on a logarithmic axis
    drawn = axes.barh(range(len(rows)), np.subtract(times, left), 0.72, left, color=GPU)
    axes.bar_label(drawn, [number(ms) for ms in times], padding=4, size=11, color=INK)
    axes.axvline(floor, color=INK, linestyle=(0, (4, 3)), linewidth=1)
    axes.text(floor, -0.75, f" {number(floor)}", size=11, color=INK, va="bottom")
    axes.set(xscale="log", xlim=(left, max(times) * 2), ylim=(len(rows) - 0.5, -1.5))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False, colors=INK)
    axes.set_facecolor("none")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
