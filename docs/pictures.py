"""Draw the pictures of the documentation: ``python docs/pictures.py [FOLDER]``; FOLDER is docs/ by default."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle

from mini_dnn.datasets import draw
from mini_dnn.models import lenet

DOCS = Path(__file__).resolve().parent
STYLE = {
    "svg.fonttype": "none",  # text stays text: small files, and tests can read it
    "svg.hashsalt": "mini_dnn",  # the same picture is the same file
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 12,
}
INK, QUIET, PAPER = "#1f2933", "#52606d", "#ffffff"  # a white card: readable on light and dark pages
GPU, CPU, EDGE = "#2f7ed8", "#9aa5b1", "#ffffff"
GAP = 62  # between two tensors, in pixels of the network's images, as all lengths below
DEPTH = {1: 0.0, 4: 6.0, 16: 2.6}  # from one channel's plane to the next


def main(folder: Path = DOCS) -> None:
    """Draw every picture."""
    with mpl.rc_context(STYLE):
        save(network(), folder / "network.svg")


def save(figure: Figure, path: Path) -> None:
    """Write a picture, without a date so that the same picture is the same file."""
    figure.savefig(path, facecolor="none", metadata={"Date": None} if path.suffix == ".svg" else None)
    print(f"drawn: {path}")


def network() -> Figure:
    """LeNet: its arrays to scale but for the vectors, its layers as arrows."""
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
    axes.text(
        right / 2, -104, "blue: a variant of this repository, CUDA kernels; grey: NumPy", color=QUIET, ha="center"
    )
    axes.set_xlim(-22, right + 26)
    axes.set_ylim(-116, 88)
    return figure


def card(width: float, height: float) -> tuple[Figure, Axes]:
    """Make a figure in inches: a white card with round corners, and axes over all of it without ticks."""
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
    """Draw channels one behind the other, the last in front; where the drawing ends on the right."""
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
    """Draw a layer: an arrow over the gap that begins at ``left``, its name above and the rest below."""
    x, ink = left + GAP / 2, INK if colour == GPU else QUIET
    tip = [(left + GAP - 8, 0), (left + GAP - 17, 5), (left + GAP - 17, -5)]
    axes.plot([left + 8, left + GAP - 17], [0, 0], color=colour, linewidth=2, solid_capstyle="butt")
    axes.add_patch(Polygon(tip, facecolor=colour, edgecolor="none"))
    axes.text(x, 8, words[0], ha="center", color=ink, weight="bold" if colour == GPU else "normal")
    axes.text(x, -9, "\n".join(words[1:]), ha="center", va="top", color=ink, linespacing=1.3)


def caption(axes: Axes, x: float, name: str, shape: tuple[int, ...]) -> None:
    """Write an array's shape under it, and its name."""
    text = "×".join(map(str, shape)) + (f"\n{name}" if name else "")
    axes.text(x, -66, text, ha="center", va="top", color=INK, linespacing=1.3)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
