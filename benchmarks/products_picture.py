"""Draw the speed of a variant relative to another one, for products of random sizes.

``python benchmarks/products_picture.py RESULTS.json --picture FILE.svg`` draws one file. With several, each
has a colour, and a name in the legend: ``"any size=RESULTS.json" "multiples of 8=OTHERS.json"``.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path

from command_line import parser_of, read
from matplotlib.figure import Figure
from picture_files import check_picture, save_picture

from mini_dnn import ops
from mini_dnn.cli import status_of
from mini_dnn.errors import DataError
from mini_dnn.report.theme import WIDTH, Theme

HEIGHT = 3.2  # inches


def ratios(file: Path, base: str, variant: str) -> list[tuple[int, float]]:
    """Return the FLOPs of each product, and how many times as fast as ``base`` ``variant`` is.

    Raises
    ------
    DataError
        A result was wrong, or no product was measured with both.
    """
    times: dict[str, dict[str, float]] = {}
    for row in read(file)["rows"]:
        if "wrong" in row:
            raise DataError(
                f"{file}: {row['variant']} at {row['problem']} is wrong: {row['wrong']}. Correct the "
                "variant and measure again"
            )
        times.setdefault(row["problem"], {})[row["variant"]] = statistics.median(row["us"])
    both = {text: found for text, found in times.items() if base in found and variant in found}
    if not both:
        known = dict.fromkeys(name for found in times.values() for name in found)
        raise DataError(
            f"{file} has no product with both {base} and {variant}, but with {', '.join(known)}. Choose two "
            "of them with --base and --variant"
        )
    parse = ops.find("gemm").parse
    return sorted((parse(text).flops, found[base] / found[variant]) for text, found in both.items())


def draw(found: Mapping[str, Sequence[tuple[int, float]]], base: str, variant: str, theme: Theme) -> Figure:
    """Draw a point for each product, and a line at equal speed."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    for (name, points), color, marker in zip(found.items(), cycle(theme.series), cycle("o^sD"), strict=False):
        axes.scatter(
            [flops / 1e9 for flops, _ in points],
            [ratio for _, ratio in points],
            s=14,
            color=color,
            marker=marker,
            label=name,
        )
    if len(found) > 1:
        axes.legend(frameon=False)
    axes.axhline(1, color=theme.soft, linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} ×")
    axes.set_xlabel("GFLOP of the product")
    axes.set_ylabel(f"speed of {variant}\nrelative to {base}")
    return figure


def main(words: Sequence[str] | None = None) -> int:
    """Read the files, and draw."""
    parser = parser_of(__doc__)
    parser.add_argument("files", nargs="+", help="a file of products.py --random, or NAME=FILE")
    parser.add_argument("--picture", type=Path, required=True, help="write this .svg or .png")
    parser.add_argument("--base", default="gemm/cublas", help="default: %(default)s")
    parser.add_argument("--variant", default="gemm/v8", help="default: %(default)s")
    given = parser.parse_args(words)
    check_picture(given.picture)
    found = {}
    for text in given.files:
        name, _, file = text.rpartition("=")
        found[name or file] = ratios(Path(file), given.base, given.variant)
    save_picture(partial(draw, found, given.base, given.variant), given.picture)
    print(f"{sum(map(len, found.values()))} products; {given.picture} written")
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
