"""Update the measurements on the page on attention: time against tokens, and counters.

``python benchmarks/attention_page.py``

The inputs are ``results/attention/tokens*.json`` (from `attention.py`; slow rungs have separate files) and,
if they exist, ``counters*.json`` (from `attention_counters.py`). The outputs are ``docs/attention.svg``,
``docs/attention_fast.svg``, and the text between the markers of ``ladders/attention/README.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from attention_tables import Row, medians
from command_line import parser_of, read
from matplotlib.figure import Figure

from mini_dnn import ops
from mini_dnn.cli import status_of
from mini_dnn.errors import DataError
from mini_dnn.paths import ROOT
from mini_dnn.report.document import Table, markdown_table
from mini_dnn.report.readmes import replaced
from mini_dnn.report.theme import WIDTH, Theme, picture
from mini_dnn.variant import climbed, find, names

RESULTS = ROOT / "benchmarks/results/attention"
README = ROOT / "ladders/attention/README.md"
MARKER = "measured"
HEIGHT = 5.0  # inches
MODE = "written"  # the L2 cache contains modified lines of another array, which must be written back first
COUNT = (
    "python benchmarks/attention_counters.py --impl attention/v0,attention/v6,attention/v9 "
    "--out benchmarks/results/attention/counters.json"
)
# Rungs so slow that the others would be indistinguishable
SLOW = {*(f"attention/v{i}" for i in range(7)), "math"}
MARKS = "os^Dv<>P"
# The first seven rungs follow "Accelerating Vision Transformer Inference with Custom CUDA Kernels", a final
# project of NTU's course on parallel programming. Its README has these figures, but does not name the GPU.
# Times are for a batch of 32, and counters for a batch of 1 with 197 tokens.
ORIGINAL_US = {
    "library": (38.00, 670.83, 2120),
    "v0": (48010, 410740, 1300000),
    "v1": (4680, 39690, 129130),
    "v2": (1930, 15670, 51950),
    "v3": (1420, 11440, 36640),
    "v4": (988.45, 6970, 20920),
    "v5": (699.27, 4080, 12160),
    "v6": (649.13, 3760, 11220),
}
ORIGINAL_COUNTERS = (
    ("v0", "(1,12,197)", "256", 64.89, 64.89, 27.65, 6, 16),
    ("v1", "(12,197,1)", "64", 61.16, 61.16, 19.49, 24, 5),
    ("v2", "(12,25,1)", "32", 8.19, 8.19, 3.66, 28, 5),
    ("v3", "(12,13,1)", "32", 5.74, 2.76, 2.07, 16, 5),
    ("v4", "(12,4,1)", "128", 3.05, 3.03, 8.32, 4, 2),
    ("v5", "(12,2,1)", "256", 2.28, 2.86, 16.73, 2, 2),
    ("v6", "(12,2,1)", "256", 2.00, 3.00, 16.59, 2, 2),
)
COUNTERS = ("grid", "block", "memory, %", "SM, %", "occupancy, %", "by registers", "by shared memory")

Times = Mapping[str, Mapping[int, float]]  # microseconds by name and number of tokens


def times_of(found: Mapping[str, Any]) -> dict[str, dict[int, float]]:
    """The median for each name and number of tokens, in the faster layout."""
    parse = ops.find("attention").parse
    of_tokens: dict[int, list[Row]] = {}
    for row in found["rows"]:
        of_tokens.setdefault(parse(row["problem"]).T, []).append(row)
    times: dict[str, dict[int, float]] = {}
    for tokens, rows in of_tokens.items():
        for (name, mode), us in medians(rows).items():
            if mode == MODE:
                times.setdefault(find(name).name if "/" in name else name, {})[tokens] = us
    return {name: times[name] for name in [*rungs(times), *(name for name in times if "/" not in name)]}


def rungs(times: Times) -> list[str]:
    """The variants among the names, in the order of the ladder."""
    return [name for name in climbed({n: find(n).parent for n in names("attention")}) if name in times]


def draw(times: Times, left_out: set[str], theme: Theme) -> Figure:
    """Plot time against tokens on logarithmic axes, where growth with T and with T² are straight lines."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    shown = [name for name in times if name.partition("_")[0] not in left_out]
    for at, name in enumerate(shown):
        color, mark = theme.series[at % len(theme.series)], MARKS[at // len(theme.series) % len(MARKS)]
        points = sorted(times[name].items())
        is_ours = name.startswith("attention/")
        axes.plot(
            *zip(*points, strict=True),
            f"{mark}-" if is_ours else f"{mark}--",
            color=color,
            label=name,
            markersize=5,
        )
    tokens = sorted({T for name in shown for T in times[name]})
    least = min(times[name][T] for name in shown for T in times[name] if tokens[0] == T)
    for power, word in ((1, "T"), (2, "T²")):
        line = [0.7 * least * (T / tokens[0]) ** power for T in tokens]
        axes.plot(tokens, line, ":", color=theme.soft, linewidth=1)
        place = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(f"as {word}", (tokens[-1], line[-1]), color=theme.soft, fontsize=9, **place)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(right=tokens[-1] * 1.2)  # space for the labels
    axes.set_xticks(tokens, [f"{T:,}" for T in tokens])
    axes.minorticks_off()
    axes.grid(visible=True)
    axes.set_xlabel("tokens")
    axes.set_ylabel("microseconds")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def growth_table(times: Times) -> Table:
    """Times at three image sizes, and how they grow from the first to the last."""
    tokens = sorted(set.intersection(*(set(of_name) for of_name in times.values())))
    heads = [f"{T:,} tokens, us" for T in tokens]
    rows = [
        [f"`{name}`" if "/" in name else name]
        + [f"{found[T]:,.1f}" for T in tokens]
        + [f"{found[tokens[-1]] / found[tokens[0]]:.1f} ×"]
        for name, found in times.items()
    ]
    return Table(["", *heads, "growth"], rows)


def original_times() -> Table:
    """The times in the original's README."""
    rows = [
        [name, *(f"{us:,.0f}" for us in found), f"{found[-1] / found[0]:.1f} ×"]
        for name, found in ORIGINAL_US.items()
    ]
    return Table(["the original", "197 tokens, us", "577 tokens, us", "1,025 tokens, us", "growth"], rows)


def counters_table(found: Mapping[str, Any]) -> Table:
    """A row for each launch."""
    rows = []
    for row in found["rows"]:
        shares = [f"{row[name]:.1f}" for name in ("memory", "sm", "occupancy")]
        blocks = [f"{row[name]:.0f}" for name in ("by_registers", "by_shared_memory")]
        rows.append([f"`{row['variant']}`", row["grid"], row["block"], *shares, *blocks])
    return Table(["", *COUNTERS], rows, text_columns=3)


def original_counters() -> Table:
    """The counters in the original's README."""
    return Table(
        ["original", *COUNTERS], [[str(cell) for cell in row] for row in ORIGINAL_COUNTERS], text_columns=3
    )


def together(counted: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Combine the rows of several files; None without files.

    Raises
    ------
    DataError
        The files are not of one device and problem, as the table requires.
    """
    if len({(found["device"], found["problem"]) for found in counted}) > 1:
        raise DataError("the files of counters are of several devices or problems; measure them again on one")
    return {**counted[0], "rows": [row for found in counted for row in found["rows"]]} if counted else None


def counters_text(counters: Mapping[str, Any] | None) -> list[str]:
    """The results of Nsight Compute, or the command that measures them."""
    if counters is None:
        return [f"Counters are not measured yet: `{COUNT}`, then `python benchmarks/attention_page.py`."]
    return [
        f"The next table shows results of Nsight Compute at `{counters['problem']}`, {counters['device']}: "
        "throughputs and occupancy in percent of the peak, and the number of blocks for which a "
        "multiprocessor has registers and shared memory.",
        markdown_table(counters_table(counters)),
    ]


def text_of(found: Mapping[str, Any], counters: Mapping[str, Any] | None) -> str:
    """The text between the markers."""
    times = times_of(found)
    at = found["commit"]["commit"][:10]
    return "\n\n".join(
        [
            "![Time against tokens, all rungs](../../docs/attention.svg)",
            "![Time against tokens, the fast ones](../../docs/attention_fast.svg)",
            f"Kernel times of 32 × 12 heads of 64, halves, {found['device']}, commit `{at}`, with a cold L2 "
            "cache, in the layout in which each is faster. `empty` is a kernel that does nothing, and `copy` "
            "is a kernel that moves the same number of bytes. From 197 to 1,025 tokens, T grows by a factor "
            "of 5.2 and T² by a factor of 27.1.",
            markdown_table(growth_table(times)),
            'The first seven rungs follow a student project, "Accelerating Vision Transformer Inference with '
            'Custom CUDA Kernels" ([114-pp-final](https://github.com/weihua9217/114-pp-final)). Its README '
            "lists these times for a batch of 32, on a GPU that it does not name:",
            markdown_table(original_times()),
            *counters_text(counters),
            "The original project lists these results for a batch of 1 with 197 tokens:",
            markdown_table(original_counters()),
            "Written by `python benchmarks/attention_page.py`.",
        ]
    )


def main(words: Sequence[str] | None = None) -> int:
    """Read the results, draw, and write the text."""
    parser_of(__doc__).parse_args(words)
    found = read(RESULTS / "tokens.json")
    for other in sorted(RESULTS.glob("tokens-*.json")):
        found["rows"] += read(other)["rows"]
    counted = [read(file) for file in sorted(RESULTS.glob("counters*.json"))]
    ordered = times_of(found)
    for file, left_out in (("attention", set[str]()), ("attention_fast", SLOW)):
        (ROOT / f"docs/{file}.svg").write_bytes(picture(partial(draw, ordered, left_out)).light_svg)
    text = replaced(README.read_text(), MARKER, text_of(found, together(counted)), README)
    README.write_text(text)
    print(f"{README} and docs/attention*.svg written")
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
