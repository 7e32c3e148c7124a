"""Grade the same submissions on each engine: the grades must be equal, and the speed-up is measured.

``python benchmarks/scale_grading.py`` creates 100 mixed submissions and grades them with the preset `small`:
with several numbers of processes on this machine, on as many cores, and with two workers of Slurm, Dask and
MPI on all cores. It starts these engines; ``--engines local`` leaves them out. It writes
``results/scale/grading.json``. ``--page`` writes the table of docs/scale.md from that file.

The wall time is only valid if nothing else uses the cores, so each run also records the CPU time of its
processes, and that of all others.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import scale
from command_line import counts, output, parser_of, positive, write

from mini_dnn.cli import status_of
from mini_dnn.errors import MiniDnnError
from mini_dnn.measuring.machine import commit, cpu_name, versions
from mini_dnn.paths import ROOT
from mini_dnn.report.document import Table, markdown_table
from mini_dnn.report.readmes import replaced

RESULT = ROOT / "benchmarks/results/scale/grading.json"
PAGE = ROOT / "docs/scale.md"
MARKER = "grading"
TITLES = {"local": "local", "slurm": "Slurm", "dask": "Dask", "mpi": "MPI"}
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
THREAD = re.compile(r"thread \([\d, ]+\) of block \([\d, ]+\)")
KINDS = {  # kinds of submissions, and how they differ from m1/direct
    "right": {},
    "wrong": {"kernel.cu": ("acc +=", "acc -=")},
    "broken": {"kernel.cu": ("float acc", "flaot acc")},
    "beyond": {"kernel.cu": ("if (pixel >= P * Q) return;", "")},
    "no_plan": {"variant.py": ("def plan(", "def plna(")},
}


def submissions(folder: Path, count: int) -> list[str]:
    """Create folders of mixed submissions."""
    made = []
    for at in range(count):
        kind = list(KINDS)[at % len(KINDS)]
        place = folder / f"{kind}{at:03}"
        shutil.copytree(ROOT / "milestones/m1/direct", place)
        for name, (old, new) in KINDS[kind].items():
            text = (place / name).read_text()
            assert old in text, (kind, old)
            (place / name).write_text(text.replace(old, new))
        with (place / "kernel.cu").open("a") as file:
            file.write(f"// submission {at}\n")
        made.append(str(place))
    return made


def earned(out: Path) -> dict[str, Any]:
    """Read the grades, without what differs from run to run: times, random seeds, the emulator's threads.

    If several threads of a kernel write out of bounds, the message names the one that was found first.
    """
    grades = {}
    for file in sorted((out / "grades").glob("*.json")):
        grade = json.loads(file.read_text())["value"]
        for check in grade["checks"]:
            check["seconds"], check["staff"] = 0, ""
            check["message"] = THREAD.sub("a thread", check["message"])
        device = re.sub(r", \d+ threads?", "", grade["device"])
        grades[file.stem] = grade | {"seconds": 0, "started": "", "device": device}
    return grades


def busy_s() -> float:
    """Busy seconds of all cores since the machine started."""
    user, nice, system, _, _, irq, soft, *_ = Path("/proc/stat").read_text().split()[1:11]
    return sum(map(int, (user, nice, system, irq, soft))) / os.sysconf("SC_CLK_TCK")


def adopt() -> None:
    """Become the parent of processes whose parent ended first, so that their CPU time is known."""
    if ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl cannot make this process a subreaper")


def reap() -> None:
    """Wait for children that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def graded(words: list[str]) -> dict[str, float]:
    """Return the seconds of a command, of its own processes, and of all others on this machine.

    Raises
    ------
    MiniDnnError
        The command failed. The message has the end of its output.
    """
    busy, since, used = busy_s(), time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | scale.MPI)
    took, busy = time.monotonic() - since, busy_s() - busy
    reap()
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        said = f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
        raise MiniDnnError(f"{shlex.join(words)} failed with the exit status {done.returncode}:\n{said}")
    cpu_s = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return {"seconds": took, "cpu_s": cpu_s, "machine_cpu_s": busy}


def grading(count: int, workers: Sequence[int], others: bool, repeats: int, folder: Path) -> dict[str, Any]:
    """Grade the same submissions with several numbers of local processes, and with each other engine."""
    run = [str(ROOT / "run.py"), "grade", *submissions(folder / "submissions", count)]
    run += ["--rubric", "small", "--device", "emulator"]
    ways: list[tuple[str, int, list[str]]] = [("local", jobs, ["--jobs", str(jobs)]) for jobs in workers]
    cores = sorted(os.sched_getaffinity(0))
    runs: list[dict[str, Any]] = []
    first: dict[str, Any] = {}
    with ExitStack() as stack:
        if others:
            for name, (executor, profile) in stack.enter_context(scale.engines(folder)).items():
                more = ["--profile", str(profile)] if profile else []
                ways.append((name, 2, ["--executor", executor, *more]))
        for repeat in range(repeats):
            for name, jobs, more in ways:
                used = cores[:jobs] if name == "local" else cores
                before = ["taskset", "--cpu-list", ",".join(map(str, used))]
                before += scale.MPIEXEC if name == "mpi" else [sys.executable]
                out, load = folder / f"{name}{jobs}-{repeat}", os.getloadavg()[0]
                took = graded([*before, *run, *more, "--out", str(out)])
                found = earned(out)
                first = first or found
                runs.append(
                    {
                        "engine": name,
                        "workers": jobs,
                        "cores": len(used),
                        **{unit: round(seconds, 2) for unit, seconds in took.items()},
                        "load_1min_before": round(load, 2),
                        "graded": len(found),
                        "sha256_of_grades": hashlib.sha256(
                            json.dumps(found, sort_keys=True).encode()
                        ).hexdigest(),
                        "same_grades": found == first,
                    }
                )
                print(runs[-1], flush=True)
    points = {name: sum(check["points"] for check in one["checks"]) for name, one in first.items()}
    of_kind = {kind: sorted({p for name, p in points.items() if name.startswith(kind)}) for kind in KINDS}
    return {"submissions": count, "runs": runs, "points_by_kind": of_kind}


def medians(runs: Sequence[Mapping[str, Any]], what: str) -> dict[tuple[str, int], float]:
    """Medians for each engine and number of workers."""
    of: dict[tuple[str, int], list[float]] = {}
    for run in runs:
        of.setdefault((run["engine"], run["workers"]), []).append(run[what])
    return {key: statistics.median(values) for key, values in of.items()}


def table(found: Mapping[str, Any]) -> str:
    """The measurements for the page, with a sentence about the machine."""
    runs = found["runs"]
    seconds, cpu_s, machine = (medians(runs, what) for what in ("seconds", "cpu_s", "machine_cpu_s"))
    cores = medians(runs, "cores")
    lines = []
    for key, wall in seconds.items():
        engine, workers = key
        same = sum(
            run["graded"] * run["same_grades"] for run in runs if (run["engine"], run["workers"]) == key
        )
        total = sum(run["graded"] for run in runs if (run["engine"], run["workers"]) == key)
        own = engine in ("local", "mpi")  # jobs of other engines are not children of the command
        lines.append(
            [
                TITLES[engine],
                str(workers),
                f"{cores[key]:.0f}",
                f"{wall:.1f}",
                f"{seconds['local', 1] / wall:.2f}",
                f"{cpu_s[key]:.1f}" if own else "–",
                f"{machine[key] - cpu_s[key]:.1f}" if own else "–",
                f"{same} of {total}",
            ]
        )
    names = [
        "engine",
        "workers",
        "cores",
        "seconds",
        "speed-up",
        "processor seconds",
        "of other programs",
        "same grades",
    ]
    shown = markdown_table(Table(names, lines))
    return f"{shown}\n\n{found['cores']} cores ({found['cpu']}), commit `{found['commit'][:10]}`."


def main(words: Sequence[str] | None = None) -> int:
    """Measure and write a file, or write the page from it. Return 1 if grades differ."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--out", type=output, metavar="FILE", default=RESULT, help=f"default: {RESULT.relative_to(ROOT)}")
    add("--page", action="store_true", help="only write the page, from the file --out")
    add("--count", type=positive, default=100, help="number of submissions (default: %(default)s)")
    add("--workers", type=counts, default="1,2,4", help="numbers of processes here (default: %(default)s)")
    add("--engines", choices=("all", "local"), default="all", help="default: %(default)s")
    add("--repeats", type=positive, default=1, help="runs of each (default: %(default)s)")
    args = parser.parse_args(words)
    if args.page:
        block = table(json.loads(args.out.read_text()))
        PAGE.write_text(replaced(PAGE.read_text(), MARKER, block, PAGE))
        return 0
    if args.engines == "all":
        scale.check_engines()
    about = {**commit(), "cores": len(os.sched_getaffinity(0)), "cpu": cpu_name(), "versions": versions()}
    adopt()
    workers = sorted({1, *args.workers})  # with one, because speed-ups are relative to it
    with tempfile.TemporaryDirectory() as name:
        found = about | grading(args.count, workers, args.engines == "all", args.repeats, Path(name))
    write(args.out, found)
    print(table(found))
    return int(not all(run["same_grades"] for run in found["runs"]))


if __name__ == "__main__":
    sys.exit(status_of(main))
