"""Measure the overhead of grading, in addition to compiling and running the kernels.

``python benchmarks/grading.py --out FILE`` grades variants with the preset `small` in the emulator, with
``run.py grade``. Clocks in the confined processes measure the time for g++ and the kernels. Everything else
is overhead: the start of Python, isolation, plans, the analysis of machine code, references, comparisons,
results. The figures are wall-clock seconds, which are meaningful on an idle machine, and CPU seconds, which
always are.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mini_dnn.errors import CheckError, MiniDnnError
from mini_dnn.grading.confined import forkserver
from mini_dnn.measuring.machine import commit, cpu_name, versions
from mini_dnn.paths import ROOT

WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
VARIANTS = ("milestones/m1/direct", "milestones/m3/register_tiling", "layers/custom")
OURS = {  # functions of confined processes that do the kernels' own work, by their names in `roles`
    "compile": ("build_kernels",),
    "run": ("run_planned", "check_plans"),
}
SLOTS = [f"{what} {unit}" for what in (*OURS, "process") for unit in ("s", "cpu_s")]
CLOCKS = struct.Struct(f"={len(SLOTS)}d")


class Clocks:
    """Named seconds in a file that processes share. Confined processes cannot open it, but inherit it."""

    def __init__(self, file: Path) -> None:
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), CLOCKS.size)

    def add(self, what: str, seconds: float, cpu_seconds: float) -> None:
        """Add to a pair of clocks. Only one process at a time does so."""
        all_ = dict(zip(SLOTS, CLOCKS.unpack_from(self._memory), strict=True))
        all_[f"{what} s"] += seconds
        all_[f"{what} cpu_s"] += cpu_seconds
        CLOCKS.pack_into(self._memory, 0, *all_.values())

    def timed(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that it adds its time."""

        @functools.wraps(function)
        def wrapped(*args: Any, **more: Any) -> Any:
            since, cpu_since = time.perf_counter(), cpu_seconds()
            try:
                return function(*args, **more)
            finally:
                self.add(what, time.perf_counter() - since, cpu_seconds() - cpu_since)

        return wrapped


def cpu_seconds() -> float:
    """CPU time of this process, and of children that it has waited for."""
    return sum(time for who in WHO for time in resource.getrusage(who)[:2])


def install(file: str) -> None:
    """Let the fork server, which runs this, and its children add up their times."""
    from mini_dnn.grading.confined import roles, wire

    clocks = Clocks(Path(file))
    for what, names in OURS.items():
        for name in names:
            setattr(roles, name, clocks.timed(what, getattr(roles, name)))
    serve, reply, told = forkserver._serve, wire.reply, [0.0]

    def serve_and_tell(*args: Any) -> None:
        clocks.add("process", 0.0, cpu_seconds())
        serve(*args)

    def reply_and_tell(*args: Any) -> None:
        reply(*args)
        now = cpu_seconds()
        clocks.add("process", 0.0, now - told[0])
        told[0] = now

    forkserver._serve, wire.reply = serve_and_tell, reply_and_tell


def grade(file: str, words: list[str]) -> int:
    """Run ``run.py grade`` with these clocks."""
    start = f"sys.path.append({str(Path(__file__).parent)!r}); import grading; grading.install({file!r}); "
    forkserver.START = forkserver.START.replace("forkserver.main(", f"{start}forkserver.main(")
    from mini_dnn.cli import main

    status = main(["grade", *words])
    Clocks(Path(file)).add("process", 0.0, sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    return status


def measured(variants: list[str], folder: Path) -> dict[str, float]:
    """Return the seconds of one command that grades these variants.

    Raises
    ------
    MiniDnnError
        The command failed, and has printed why.
    CheckError
        A variant did not pass, so its time says nothing.
    """
    file, out = folder / "clocks", folder / "out"
    file.write_bytes(bytes(CLOCKS.size))
    words = [*variants, "--rubric", "small", "--device", "emulator", "--out", str(out)]
    since = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "grade", str(file), *words],
        check=False,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    seconds = time.perf_counter() - since
    if done.returncode:
        raise MiniDnnError(f"run.py grade failed with the exit status {done.returncode}; see above")
    for path in (out / "grades").glob("*.json"):
        for check in json.loads(path.read_text())["value"]["checks"]:
            if check["status"] != "passed":
                raise CheckError(f"{path.stem} {check['status']} {check['name']}: {check['message']}")
    all_ = dict(zip(SLOTS, CLOCKS.unpack(file.read_bytes()), strict=True))
    all_["process s"] = seconds
    overhead = {
        f"overhead {unit}": all_[f"process {unit}"] - sum(all_[f"{what} {unit}"] for what in OURS)
        for unit in ("s", "cpu_s")
    }
    return all_ | overhead


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, and write a file."""
    # Not at the top, because the measured processes import this file
    from command_line import add_out, parser_of, positive, write

    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=positive, default=5, help="runs that count (default: %(default)s)")
    add_out(parser, required=True)
    args = parser.parse_args(words)
    about = {**commit(), "cpu": cpu_name(), "versions": versions()}
    load = {"cores": os.cpu_count(), "load_1min": os.getloadavg()[0]}
    rows = []
    for variants in [[name] for name in VARIANTS] + [list(VARIANTS)]:
        found = []
        for _ in range(args.repeats + 1):  # the first run fills the cache of the emulator's own libraries
            with tempfile.TemporaryDirectory() as name:
                found.append(measured(variants, Path(name)))
        medians = {key: statistics.median(one[key] for one in found[1:]) for key in found[0]}
        rows.append({"variants": variants, "seconds": medians, "all": found[1:]})
        each = ", ".join(
            f"{medians[f'overhead {unit}'] / len(variants):.2f} {unit}" for unit in ("s", "cpu_s")
        )
        print(f"{', '.join(variants)}: overhead of each {each}; {medians}", flush=True)
    write(args.out, about | load | {"rows": rows})
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["grade"]:
        sys.exit(grade(sys.argv[2], sys.argv[3:]))
    from mini_dnn.cli import status_of

    sys.exit(status_of(main))
