"""Nsight Systems: kernels and copies on one timeline."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from mini_dnn.device.tools import failure, find_tool, run
from mini_dnn.profiling.job import Job

REPORTS = {  # reports of "nsys stats", and headings for them
    "cuda_gpu_kern_sum": "kernels, on the GPU",
    "cuda_gpu_mem_time_sum": "copies and fills, on the GPU",
    "cuda_api_sum": "calls, on the CPU (waiting counts)",
}
TOTAL_COLUMN = "Total Time (ns)"
COUNT_COLUMNS = ("Instances", "Count", "Num Calls")
NAME_COLUMNS = ("Name", "Operation")
SHOWN_ROWS = 8


@dataclass(frozen=True)
class Row:
    """The total time of one kernel, kind of copy or call."""

    name: str
    count: int
    total_ms: float


def profile(job: Job) -> tuple[dict[str, list[Row]], Path]:
    """Record one run of all layers after a warm-up. Return totals by report, and the timeline's file.

    Raises
    ------
    MiniDnnError
        nsys is not installed, or nothing was recorded.
    """
    nsys = find_tool("nsys")
    log, report = job.folder / "nsys.log", job.folder / "timeline.nsys-rep"
    done = run(command(str(nsys), job, report), log)
    if not report.is_file():
        raise failure("nsys", done, log)
    found = {}
    for name in REPORTS:
        words = [str(nsys), "stats", "--force-export=true", f"--report={name}", "--format=csv", "--output=-"]
        done = run([*words, str(report)], job.folder / f"{name}.csv")
        found[name] = parse(done.output)
    if not found["cuda_gpu_kern_sum"]:
        raise failure("nsys stats", done, job.folder)
    return found, report


def command(nsys: str, job: Job, report: Path) -> list[str]:
    """The command line that records the range marked by the workload, without sampling of the CPU."""
    words = [nsys, "profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none"]
    words += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--force-overwrite=true"]
    return [*words, f"--output={report.with_suffix('')}", *job.command("--capture")]


def parse(text: str) -> list[Row]:
    """Read one report of ``nsys stats --format csv``, longest rows first, skipping messages around it."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if TOTAL_COLUMN in line), None)
    if start is None:
        return []
    rows = []
    for cells in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        name = next((cells[column] for column in NAME_COLUMNS if cells.get(column)), None)
        count = next((cells[column] for column in COUNT_COLUMNS if cells.get(column)), "0")
        try:
            total_ns = float((cells.get(TOTAL_COLUMN) or "").replace(",", ""))
            rows.append(Row(name or "?", int(float(count.replace(",", ""))), total_ns / 1e6))
        except ValueError:  # a message after the table
            continue
    return sorted(rows, key=lambda row: -row.total_ms)


def describe(found: dict[str, list[Row]]) -> list[str]:
    """Describe the longest rows of each report, and the kernels' share of the GPU's time."""
    lines = []
    for report, title in REPORTS.items():
        rows = found.get(report, [])
        total = sum(row.total_ms for row in rows)
        if not rows or not total:
            continue
        lines.append(f"{title}: {total:.3f} ms in all")
        for row in rows[:SHOWN_ROWS]:
            lines.append(
                f"  {row.total_ms:>10.3f} ms {row.total_ms / total:>5.0%} {row.count:>6} x  {row.name}"
            )
        lines += [f"  and {len(rows) - SHOWN_ROWS} more"] if len(rows) > SHOWN_ROWS else []
    kernels, copies = (sum(row.total_ms for row in found.get(name, [])) for name in list(REPORTS)[:2])
    if kernels and copies:
        more, less = ("copies", "kernels") if copies > kernels else ("kernels", "copies")
        lines.append(
            f"The {more} take {max(kernels, copies) / min(kernels, copies):.1f} times as long as the {less}: "
            + (
                "faster kernels alone shorten a layer little; overlap the copies (m3/streams), or copy less"
                if more == "copies"
                else "optimise the kernels"
            )
        )
    return lines
