"""Draw the milestones' pictures from the counters: ``python docs/lessons.py [FOLDER [NAME ...]]``."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pictures import CPU, DOCS, GPU, INK, QUIET, STYLE, card, save

from mini_dnn.device.emulator.counted_interface import LANES, EventKind, Space
from mini_dnn.explain.blocks import footprints
from mini_dnn.explain.collect import collect
from mini_dnn.explain.kernels import SHARED, Counted
from mini_dnn.explain.steps import BANKS, WORD, flights
from mini_dnn.variant import find

SECTOR_WORDS, LINE_WORDS = 8, 32
WORD_PIXELS = 13.8
OTHER, BOTH = "#e69f00", "#b0308f"  # another block; two blocks
PRODUCT, BARRIER, COPY = "#2e8b2e", "#b35900", "#c2185b"
EDGE, FETCHED = "#cbd2d9", "#dfe5ea"
Changes = tuple[tuple[str, str], ...]  # pairs of a text in a kernel and its replacement
DOWN_COLUMNS: Changes = (
    ("= pixel / Q, q = pixel % Q;", "= pixel % P, q = pixel / P;"),
    ("+ pixel] = acc;", "+ p * Q + q] = acc;"),
)


def main(folder: str = str(DOCS), *names: str) -> None:
    """Draw the pictures with these names, or all pictures."""
    pictures = {"coalescing": coalescing, "reuse": reuse, "conflicts": conflicts}
    with mpl.rc_context(STYLE):
        for name in names or pictures:
            save(pictures[name](), Path(folder) / f"{name}.svg")


def counted(name: str, problem: str, batch: int = 1, changes: Changes = ()) -> list[Counted]:
    """Count the accesses of a variant or a changed copy, for one entry of a course problem."""
    variant = find(name)
    sizes = variant.operation.course[problem].with_batch(batch)
    if not changes:
        return collect(variant, sizes, threads=1)
    text = variant.source.read_text()
    for old, new in changes:
        if text.count(old) != 1:
            raise SystemExit(f"{variant.source} no longer has '{old}': see docs/lessons.py")
        text = text.replace(old, new)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.cu").write_text(text)
        (Path(folder) / "variant.py").write_text((variant.folder / "variant.py").read_text())
        return collect(find(folder), sizes, threads=1)


def accesses(kernel: Counted, array: str, kind: EventKind) -> np.ndarray:
    """The accesses of an array by the first warp of the first block."""
    number = [one.name for one in kernel.launch.arrays].index(array)
    records = kernel.traces[0].records
    return records[(records["array"] == number) & (records["kind"] == kind) & (records["warp"] == 0)]


def colour_of(lane: int) -> Any:
    """A light colour for each lane. The number of the lane is written on it."""
    red, green, blue, _ = colormaps["turbo"](0.08 + 0.84 * lane / (LANES - 1))
    return tuple(0.45 + 0.55 * part for part in (red, green, blue))


def coalescing() -> Figure:
    """Loads of x by a warp of m1/direct, and one of the copy whose threads go down a column."""
    figure, axes = card(13.2, 5.2)
    for left, words, changes, count in (
        (20, "neighbouring threads: neighbouring pixels of a row", (), 4),
        (490, "neighbouring threads: neighbouring pixels of a column", DOWN_COLUMNS, 1),
    ):
        (kernel,) = counted("m1/direct", "conv1", changes=changes)
        sites = [a for a in kernel.counters.accesses if (a.array, a.operation) == ("x", "load")]
        each = sum(a.sectors for a in sites) / sum(a.instructions for a in sites)
        axes.text(left, 352, words, color=INK, weight="bold")
        text = f"a load of x moves {each:.1f} sectors of 32 bytes on average, and uses 128 bytes"
        axes.text(left, 332, text, color=QUIET, size=11)
        top = 318.0
        for s, record in enumerate(accesses(kernel, "x", EventKind.LOAD)[:count]):
            bottom, sectors = lines(axes, left, top - 14 * (count > 1), record["offsets"] // WORD)
            if count > 1:
                axes.text(left, top - 9, f"r = 0, s = {s}: {sectors} sectors", color=QUIET, size=10)
            top = bottom - 16
    words = (
        "a row: a line of memory, 4 sectors of 8 words; grey: moved, not used; the number: a lane of the warp"
    )
    axes.text(475, 12, words, ha="center", color=QUIET, size=11)
    axes.set(xlim=(0, 950), ylim=(0, 374))
    return figure


def lines(axes: Axes, left: float, top: float, words: np.ndarray) -> tuple[float, int]:
    """Draw the lines of memory in which 32 words lie. Return the lower end, and the number of sectors."""
    lane_of = {int(word): lane for lane, word in enumerate(words)}
    sectors = {word // SECTOR_WORDS for word in lane_of}
    rows = sorted({word // LINE_WORDS for word in lane_of})
    size, step = WORD_PIXELS, min(WORD_PIXELS + 2, 288 / len(rows))
    for row, line in enumerate(rows):
        height = step - 1.5
        y = top - row * step - height
        for sector in sectors:
            if sector * SECTOR_WORDS // LINE_WORDS == line:
                at = left + sector * SECTOR_WORDS % LINE_WORDS * size, y
                axes.add_patch(Rectangle(at, SECTOR_WORDS * size, height, facecolor=FETCHED))
        for word, lane in lane_of.items():
            if word // LINE_WORDS == line:
                square(axes, left + word % LINE_WORDS * size, y, (size, height), lane)
        whole = (left, y), LINE_WORDS * size, height
        axes.add_patch(Rectangle(*whole, facecolor="none", edgecolor=EDGE, linewidth=0.6))
    return top - len(rows) * step, len(sectors)


def square(axes: Axes, x: float, y: float, size: tuple[float, float], lane: int) -> None:
    """Draw a word with the number of the lane that uses it."""
    axes.add_patch(Rectangle((x, y), *size, facecolor=colour_of(lane), edgecolor="white", linewidth=0.4))
    middle = x + size[0] / 2, y + size[1] / 2 - 0.3
    axes.text(*middle, str(lane), ha="center", va="center", size=min(6.5, 0.62 * size[1]), color=INK)


def reuse() -> Figure:
    """What two blocks of m2's product read and write, and how often it uses what it has loaded."""
    figure, axes = card(13.2, 4.6)
    gemm = next(kernel for kernel in counted("m2/unroll_gemm", "conv2") if kernel.name == "gemm")
    (direct,) = counted("m1/direct", "conv2")
    M, K = 16, 196
    shown = 96  # columns
    for name, writes, place, rows, columns in (
        ("w", False, (20, 40, 210, 70), M, K),
        ("col", False, (250, 118, 330, 175), K, shown),
        ("gemm_out", True, (250, 40, 330, 70), M, shown),
    ):
        marks = np.zeros((rows, columns), int)
        for bit, block in ((1, 0), (2, 1)):
            marks |= bit * (uses(gemm, block)[name, writes].reshape(rows, -1)[:, :columns] > 0)
        picture(axes, place, marks)
        what = f"{name}: {'written' if writes else 'read'}"
        at = (place[0], place[1] - 15) if name != "col" else (place[0], place[1] + place[3] + 7)
        what += f", {rows} rows, the first {columns} columns" if rows != M or writes else ""
        axes.text(*at, what, color=INK)
    for y, colour, words in ((270, GPU, "block 0"), (248, OTHER, "block 1"), (226, BOTH, "both")):
        axes.add_patch(Rectangle((20, y), 16, 11, facecolor=colour))
        axes.text(44, y + 1, words, color=INK)
    axes.text(620, 285, described(gemm, direct), va="top", color=INK, linespacing=1.5)
    axes.set(xlim=(0, 950), ylim=(0, 331))
    return figure


def described(gemm: Counted, direct: Counted) -> str:
    """What the counters of m2's product and of m1/direct say about reuse."""
    of_direct, of_gemm = (
        kernel.counters.sum("lanes", "global", "load") / kernel.counters.operations("ffma")
        for kernel in (direct, gemm)
    )
    reads = gemm.counters.sum("lanes", "shared", "load") / gemm.counters.sum("lanes", "shared", "store")
    text = (
        "Loads from global memory, for each product:",
        f"    m1/direct    {of_direct:.2f}",
        f"    m2, its gemm    {of_gemm:.2f}",
        "",
        "A block loads a value of its tiles once, and",
        f"its threads read it {reads:.0f} times from shared memory.",
        "",
        "All blocks of a row read the same w:",
        "a wider tile would load it for more columns.",
    )
    return "\n".join(text)


def picture(axes: Axes, place: tuple[float, float, float, float], marks: np.ndarray) -> None:
    """Draw a matrix with the elements that the first block, the second or both use."""
    left, bottom, width, height = place
    rows, columns = marks.shape
    for mark, colour in ((1, GPU), (2, OTHER), (3, BOTH)):
        found = np.argwhere(marks == mark)
        if len(found):
            (top, first), (end, last) = found.min(axis=0), found.max(axis=0) + 1
            if (marks[top:end, first:last] != mark).any():
                raise SystemExit("a block's part is no rectangle any more: see docs/lessons.py")
            at = left + first * width / columns, bottom + (rows - end) * height / rows
            size = (last - first) * width / columns, (end - top) * height / rows
            axes.add_patch(Rectangle(at, *size, facecolor=colour))
    axes.add_patch(Rectangle((left, bottom), width, height, facecolor="none", edgecolor=QUIET, linewidth=0.8))


def uses(kernel: Counted, block: int) -> Mapping[tuple[str, bool], np.ndarray]:
    """Count how often a block's lanes use each element, by array and by whether it is written."""
    found = {}
    for one in footprints(kernel.traces[block].records, kernel.launch):
        array = kernel.launch.arrays[one["array"]]
        flat = np.zeros(int(np.prod(array.shape)), np.int64)
        at = 0
        for distance, length, count in np.reshape(one["runs"], (-1, 3)):
            at += int(distance)
            flat[at : at + length] = count
            at += int(length)
        found[array.name, bool(one["writes"])] = flat
    return found


def conflicts() -> Figure:
    """Reads of shared memory along rows and along columns, and warps that run during copies."""
    figure, axes = card(13.2, 6.6)
    for at, (words, changes) in enumerate(
        (
            ("x_tile[ty][tx]: along a row", ()),
            ("x_tile[tx][ty], rows of 32 words", turned(32)),
            ("x_tile[tx][ty], rows of 33 words", turned(33)),
        )
    ):
        left = 20 + 312 * at
        (kernel,) = counted("m1/tiled_direct", "conv1", changes=changes)
        record = accesses(kernel, "x_tile", EventKind.LOAD)[0]
        passes = banks(axes, left, 428, record["offsets"] // WORD)
        axes.text(left, 455, words, color=INK, weight="bold")
        many = f"{passes} passes" if passes > 1 else "1 pass"
        axes.text(left, 438, f"banks 0 to 31 from left to right: {many}", color=QUIET, size=11)
    timeline(axes)
    axes.set(xlim=(0, 950), ylim=(0, 475))
    return figure


def turned(pitch: int) -> Changes:
    """Change the tile of m1/tiled_direct so that its columns are stored as rows of ``pitch`` words."""
    return (
        ("x_tile[TILE_P + CHUNK_R - 1][PITCH]", f"x_tile[PITCH][{pitch}]"),
        ("x_tile[i][j] =", "x_tile[j][i] ="),
        ("x_tile[ty + r][tx + s]", "x_tile[tx + s][ty + r]"),
    )


def banks(axes: Axes, left: float, top: float, words: np.ndarray) -> int:
    """Draw which lanes each bank serves, with one row per pass. Return the number of passes."""
    height = [0] * BANKS
    size = 8.8
    for lane, word in enumerate(words.tolist()):
        bank = word % BANKS
        height[bank] += 1
        square(axes, left + bank * size, top - height[bank] * (size - 0.6), (size, size - 0.6), lane)
    axes.plot([left, left + BANKS * size], [top, top], color=QUIET, linewidth=0.8)
    return max(height)


def colour_of_step(record: np.void, names: Sequence[str]) -> str:
    """The colour for what a warp does in a step."""
    if record["kind"] == EventKind.BARRIER or names[record["name"]] == "mbarrier_wait":
        return BARRIER
    space = Space(int(record["space"]))
    return CPU if space in SHARED else GPU if space is Space.GLOBAL else PRODUCT


def timeline(axes: Axes) -> None:
    """The steps of a block of layers/custom while its copies are in flight."""
    kernel = next(kernel for kernel in counted("layers/custom", "conv2", 4) if kernel.name == "conv")
    trace = kernel.traces[0]
    records, begin, end = trace.records, trace.steps.begin, trace.steps.end
    names = kernel.launch.names
    way = flights(records, trace.steps, names)
    first, last = 160, 1160
    scale = 860 / (last - first)
    title = "layers/custom: the steps of a block's four warps, and its copies in flight"
    axes.text(20, 118, title, color=INK, weight="bold")
    rows = {int(warp): 92 - 17 * row for row, warp in enumerate(np.unique(records["warp"]))}
    for warp, y in rows.items():
        chosen = np.flatnonzero((records["warp"] == warp) & (begin >= first) & (end <= last))
        parts = [(colour_of_step(records[i], names), int(begin[i]), int(end[i])) for i in chosen]
        for colour, group in groupby(parts, lambda part: part[0]):
            same = list(group)
            x, stop = (60 + (step - first) * scale for step in (same[0][1], same[-1][2]))
            axes.add_patch(Rectangle((x, y), stop - x, 11, facecolor=colour))
    for warp, start, stop in way:
        if start >= first and stop <= last:
            bar = (60 + (start - first) * scale, rows[warp] + 12), (stop - start) * scale, 3
            axes.add_patch(Rectangle(*bar, facecolor=COPY))
    for warp, y in rows.items():
        axes.text(52, y + 1, f"{warp}", ha="right", color=QUIET, size=10)
    for x, colour, words in (
        (60, GPU, "global memory"),
        (205, CPU, "shared memory"),
        (352, PRODUCT, "tensor cores, waits for them"),
        (588, BARRIER, "waits at a barrier"),
        (750, COPY, "copies in flight"),
    ):
        axes.add_patch(Rectangle((x, 14), 16, 10, facecolor=colour))
        axes.text(x + 22, 14, words, color=INK, size=11)


if __name__ == "__main__":
    main(*sys.argv[1:])
