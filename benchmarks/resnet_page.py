"""The measured part of the page on ResNet-18: times, copies, launches and memory of each rung by batch.

``python benchmarks/resnet_page.py``

It reads ``results/resnet18/rungs.json`` (of `resnet_rungs.py`) and ``results/cpu/resnet18-batches.json`` (of
`cpu_resnet.py`), draws ``docs/resnet18.svg``, and writes the text between the markers of
``networks/resnet18/README.md``.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from attention_page import replaced
from matplotlib.figure import Figure

from mini_dnn.paths import ROOT
from mini_dnn.report.document import Table, markdown_table
from mini_dnn.report.theme import WIDTH, Theme, picture

RESULTS = ROOT / "benchmarks/results/resnet18/rungs.json"
CPU = ROOT / "benchmarks/results/cpu/resnet18-batches.json"
README = ROOT / "networks/resnet18/README.md"
PICTURE = ROOT / "docs/resnet18.svg"
HEIGHT = 4.5  # inches
MARKS = "os^Dv<>P"
PARTS = ("weights", "activations", "workspace")  # of a rung's memory

Row = Mapping[str, Any]
Rows = Mapping[str, Mapping[int, Row]]  # by short name and batch


def rows_of(found: Mapping[str, Any], cpu: Mapping[str, Any]) -> dict[str, dict[int, Row]]:
    """The rows that agree with float64, by short name and batch, in ladder order; and those of the CPU."""
    rows: dict[str, dict[int, Row]] = {}
    for row in sorted(found["rows"], key=lambda row: row["variant"]):
        if row["agrees"]:
            rows.setdefault(row["variant"].rpartition("/")[2], {})[row["batch"]] = row
    rows["cpu"] = {int(batch): {"ms": [row["ours"]["wall_ms"]]} for batch, row in cpu["batches"].items()}
    return {name: dict(sorted(of_name.items())) for name, of_name in rows.items()}


def ms(row: Row, key: str = "ms") -> float:
    """The median of the turns."""
    return statistics.median(row[key])


def batches(rows: Rows) -> list[int]:
    """All batches that anything was measured with."""
    return sorted({batch for of_name in rows.values() for batch in of_name})


def shown(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def times_table(rows: Rows) -> Table:
    """Milliseconds per batch, and the speed-up over the first rung and over the CPU."""
    found = batches(rows)
    others = [(next(iter(rows)), found[-1]), ("cpu", found[0])]

    def faster(name: str, than: str, batch: int) -> str:
        both = rows[name].get(batch), rows.get(than, {}).get(batch)
        return f"{shown(ms(both[1]) / ms(both[0]))} ×" if both[0] and both[1] and name != than else ""

    lines = [
        [f"`{name}`"]
        + [shown(ms(of_name[batch])) if batch in of_name else "" for batch in found]
        + [faster(name, other, batch) for other, batch in others]
        for name, of_name in rows.items()
    ]
    heads = [f"{batch} images" if batch > 1 else "1 image" for batch in found]
    return Table(["ms", *heads, *(f"speed-up over `{name}`, {batch}" for name, batch in others)], lines)


def work_table(rows: Rows, batch: int) -> Table:
    """Launches and copies of each rung with one batch."""
    lines = []
    for name, of_name in rows.items():
        row = of_name.get(batch)
        if row is None or name == "cpu":
            continue
        served, kernels = ms(row, "served_ms"), ms(row, "stay_ms" if "stay_ms" in row else "ms")
        copies = f"{row['copied_bytes'] / 1e6:,.0f}", shown(served), f"{max(0.0, 1 - kernels / served):.0%}"
        lines.append([f"`{name}`", str(row["launches"]), str(row["round_trips"]), *copies])
    heads = [
        "launches",
        "round trips",
        "MB of round trips",
        "ms including copies of images and scores",
        "share of copies",
    ]
    return Table([f"{batch} images", *heads], lines)


def memory_table(rows: Rows, some: Sequence[int]) -> Table:
    """Megabytes of weights, of maps with some batches, and of the rest with the last one."""
    lines = []
    for name, of_name in rows.items():
        kept = [of_name.get(batch) for batch in some]
        last = kept[-1]
        if last is None or "memory" not in last:
            continue
        maps = [f"{row['memory']['activations'] / 1e6:,.1f}" if row else "" for row in kept]
        of_last = (last["memory"][part] / 1e6 for part in ("weights", "workspace"))
        weights, workspace = (f"{value:,.1f}" for value in of_last)
        lines.append([f"`{name}`", weights, *maps, workspace, f"{last['taken_bytes'] / 1e6:,.0f}"])
    heads = [f"activations, {batch}" for batch in some]
    return Table(["MB", "weights", *heads, f"workspace, {some[-1]}", f"total, {some[-1]}"], lines)


def draw(rows: Rows, theme: Theme) -> Figure:
    """Images a second by batch, and the memory of the largest batch."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    left, right = figure.subplots(1, 2)
    for at, (name, of_name) in enumerate(rows.items()):
        rates = [batch / ms(row) * 1e3 for batch, row in of_name.items()]
        color, mark = theme.series[at % len(theme.series)], MARKS[at // len(theme.series) % len(MARKS)]
        left.plot(list(of_name), rates, f"{mark}-", color=color, label=name, markersize=5)
    left.set_xscale("log", base=2)
    left.set_yscale("log")
    found = batches(rows)
    left.set_xticks(found, [str(batch) for batch in found])
    left.set_ylim(top=left.get_ylim()[1] * 30)  # room for the names
    left.minorticks_off()
    left.grid(visible=True)
    left.set_xlabel("images in a batch")
    left.set_ylabel("images a second")
    left.legend(fontsize=8, ncols=2, loc="upper left")
    of_largest = {name: of[found[-1]] for name, of in rows.items() if "memory" in of.get(found[-1], {})}
    base = [0.0] * len(of_largest)
    for part, color in zip(PARTS, theme.series, strict=False):
        heights = [row["memory"][part] / 1e6 for row in of_largest.values()]
        right.barh(list(of_largest), heights, left=base, color=color, label=part)
        base = [a + b for a, b in zip(base, heights, strict=True)]
    right.invert_yaxis()
    right.grid(visible=True, axis="x")
    right.set_xlabel(f"MB with {found[-1]} images")
    right.legend(fontsize=8)
    return figure


def text_of(found: Mapping[str, Any], cpu: Mapping[str, Any]) -> str:
    """The text between the markers."""
    rows = rows_of(found, cpu)
    all_batches = batches(rows)
    wrong = [f"{row['variant']}, batch {row['batch']}" for row in found["rows"] if not row["agrees"]]
    return "\n\n".join(
        [
            "![Images a second by batch, and memory](../../docs/resnet18.svg)",
            f"Images of 224 × 224 in halves, one CUDA graph per batch, {found['device']}, commit "
            f"`{found['commit']['commit'][:10]}`. `cpu` is NumPy in fp32 with {cpu['threads']} threads on "
            f"{cpu['cpu']}, commit `{cpu['commit'][:10]}`.",
            markdown_table(times_table(rows)),
            markdown_table(work_table(rows, all_batches[-1])),
            markdown_table(memory_table(rows, sorted({all_batches[0], all_batches[-1]}))),
            *([f"Omitted because they differ from float64: {'; '.join(wrong)}."] if wrong else []),
            "Written by `python benchmarks/resnet_page.py`.",
        ]
    )


def main() -> int:
    """Read, draw and write."""
    found, cpu = json.loads(RESULTS.read_text()), json.loads(CPU.read_text())
    rows = rows_of(found, cpu)
    PICTURE.write_bytes(picture(partial(draw, rows)).light_svg)
    README.write_text(replaced(README.read_text(), text_of(found, cpu), README))
    print(f"{README} and {PICTURE} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
