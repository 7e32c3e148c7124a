"""Draw the time brackets of the emulator, relative to measured times.

``python benchmarks/brackets_picture.py benchmarks/results/counters/brackets.json --picture FILE.svg``
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from command_line import parser_of, read
from matplotlib.figure import Figure
from picture_files import check_picture, save_picture

from mini_dnn.cli import status_of
from mini_dnn.report.theme import WIDTH, Theme

ROW = 0.16  # inches


def draw(rows: Sequence[dict[str, Any]], theme: Theme) -> Figure:
    """Draw the likely time of each row, and a line to the upper bound, relative to the measured time."""
    figure = Figure(figsize=(WIDTH, ROW * len(rows) + 0.9), layout="constrained")
    axes = figure.add_subplot()
    for at, row in enumerate(rows):
        likely, high = (row[f"{end}_ms"] / row["op_ms"] for end in ("likely", "high"))
        axes.plot([likely, high], [at, at], color=theme.soft, linewidth=2.5, solid_capstyle="butt")
        axes.plot(likely, at, "o", color=theme.series[0], markersize=4)
    axes.axvline(1, color=theme.series[1], linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_yticks(range(len(rows)), [f"{row['variant']}, {row['problem']}" for row in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("likely time (dot) and upper end (line), relative to the measured op time")
    return figure


def main(words: Sequence[str] | None = None) -> int:
    """Read the file, and draw."""
    parser = parser_of(__doc__)
    parser.add_argument("file", type=Path, help="a file written by brackets.py")
    parser.add_argument("--picture", type=Path, required=True, help="write this .svg or .png")
    given = parser.parse_args(words)
    check_picture(given.picture)
    rows = read(given.file)["rows"]
    save_picture(partial(draw, rows), given.picture)
    print(f"{len(rows)} rows; {given.picture} written")
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
