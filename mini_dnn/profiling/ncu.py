"""Nsight Compute: hardware counters of each kernel.

Metrics have the names of its raw page; see "Metrics Structure" and "Metrics Reference" in NVIDIA's Kernel
Profiling Guide. The GPU and the version determine which of them a report has.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mini_dnn.device.tools import failure, find_tool, run
from mini_dnn.profiling.job import Job

NAME_COLUMN = "Kernel Name"
PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# "usecond" or "us", depending on the version
UNIT = re.compile(r"(?P<prefix>[nuµmKMGT]?)(?:seconds?|s|bytes?|B)")


@dataclass(frozen=True)
class Kernel:
    """One profiled launch."""

    name: str
    grid: str  # in the tool's format, "(25, 1, 1000)"; empty if missing
    block: str
    metrics: Mapping[str, float]  # times in s, sizes in byte, rates in byte/s, others unchanged

    def first(self, *names: str) -> float | None:
        """Return the first of these metrics that the report has."""
        return next((self.metrics[name] for name in names if name in self.metrics), None)

    def total(self, name: str, parts: tuple[str, ...]) -> float:
        """Return a counter's sum, or else the sum of its parts; 0 if the report has none of them."""
        whole = self.first(f"{name}.sum")
        return sum(self.first(f"{name}{part}.sum") or 0.0 for part in parts) if whole is None else whole

    def largest(self, pattern: str) -> float | None:
        """Return the largest metric whose whole name matches a regular expression."""
        found = [value for name, value in self.metrics.items() if re.fullmatch(pattern, name)]
        return max(found, default=None)


def profile(job: Job, layer: str) -> tuple[list[Kernel], Path]:
    """Profile each kernel launch of one layer. Return the launches, and the report for Nsight Compute's GUI.

    Raises
    ------
    MiniDnnError
        ncu is not installed or has no permission, or nothing was measured.
    """
    ncu = find_tool("ncu")
    log, report = job.folder / f"{layer}.log", job.folder / f"{layer}.ncu-rep"
    done = run(command(str(ncu), job, layer, report), log)
    if not report.is_file():
        raise failure("ncu", done, log)
    pages = ["--page", "raw", "--csv", "--print-units", "base", "--print-kernel-base", "function"]
    read = run([str(ncu), "--import", str(report), *pages], job.folder / f"{layer}.csv")
    kernels = parse(read.output)
    if not kernels:
        raise failure("ncu --import", read, job.folder / f"{layer}.csv")
    return kernels, report


def command(ncu: str, job: Job, layer: str, report: Path) -> list[str]:
    """The command line that profiles one problem.

    Clocks are not locked, because locking needs rights that students seldom have. The range that the workload
    marks excludes its warm-up, and the filter of kernel names excludes the kernels that fill buffers.
    """
    words = [ncu, "--set", "full", "--import-source", "yes", "--clock-control", "none"]
    words += ["--target-processes", "all", "--profile-from-start", "off"]
    kernels = job.kernels()
    if kernels:
        words += ["--kernel-name-base", "function", "--kernel-name", f"regex:^({'|'.join(kernels)})$"]
    words += ["--force-overwrite", "--export", str(report.with_suffix(""))]
    return [*words, *job.command("--capture", only=layer)]


def parse(text: str) -> list[Kernel]:
    """Read the output of ``ncu --page raw --csv``: a line of names, one of units, and one for each launch.

    Messages before the table are skipped, and so are values that are not numbers. Without a table, the list
    is empty.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if f'"{NAME_COLUMN}"' in line), None)
    if start is None:
        return []
    header, *rows = csv.reader(io.StringIO("\n".join(lines[start:])))
    units: dict[str, str] = {}
    kernels = []
    for row in rows:
        if len(row) != len(header):  # a message after the table
            continue
        cells = dict(zip(header, row, strict=True))
        if cells[NAME_COLUMN]:
            kernels.append(_kernel(cells, units))
        else:
            units = cells
    return kernels


def _kernel(cells: Mapping[str, str], units: Mapping[str, str]) -> Kernel:
    metrics = {}
    for name, cell in cells.items():
        try:
            metrics[name] = float(cell.replace(",", "")) * _factor(units.get(name, ""))
        except ValueError:  # "n/a", or a text
            continue
    name = cells[NAME_COLUMN].split("(")[0]
    return Kernel(name, cells.get("Grid Size", ""), cells.get("Block Size", ""), metrics)


def _factor(unit: str) -> float:
    """Return the factor that converts a value of this unit to s or byte; 1 for other units."""
    numerator, _, denominator = unit.partition("/")
    return _scale(numerator) / _scale(denominator)


def _scale(unit: str) -> float:
    match = UNIT.fullmatch(unit)
    return PREFIXES[match["prefix"]] if match else 1.0
