"""Verb ``profile``: what a variant's kernels do, by NVIDIA's tools or by the emulator, in plain words."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from mini_dnn import ops
from mini_dnn.checking import sanitizer
from mini_dnn.cli.common import (
    add_force,
    add_variant,
    check_output,
    find_filled,
    problems_of,
    variant_of,
    write_json,
)
from mini_dnn.cli.log import add_log, logged
from mini_dnn.device import open_device
from mini_dnn.device.tools import find_tool
from mini_dnn.errors import DeviceError, MiniDnnError, UsageError
from mini_dnn.measuring.work_log import Tried
from mini_dnn.profiling import advice, emulated, ncu, nsys
from mini_dnn.profiling.gpus import GPUS, gpu
from mini_dnn.profiling.job import Job, rehearse
from mini_dnn.variant import Variant, default_of

FINDINGS = 1  # exit status: the checks are complete and found something
# The checkers slow a kernel down by a factor of a hundred, and the emulator is slower still.
BATCHES = {"ncu": 1000, "nsys": 1000, "sanitizer": 10, "emulator": 4}
GPU = "h200"  # whose times are estimated by default
PROGRAMS = {"ncu": "ncu", "nsys": "nsys", "sanitizer": "compute-sanitizer"}


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "profile",
        help="profile or check a variant's kernels, with or without a GPU",
        description="Run a variant under one of NVIDIA's tools, or in the emulator, on random data, at the "
        "problems of its operation, such as the two layers of the course's network, and explain the results. "
        "ncu: hardware counters of each kernel. nsys: times of kernels and copies. sanitizer: invalid "
        "accesses, races, barriers, uninitialised reads; the status is 1 if there are any. emulator: the "
        "counters that follow from addresses, per source line, and an estimated range of the time; it needs "
        "no GPU, and is the default on a machine without one.",
    )
    add_variant(parser, default_of(ops.DEFAULT, ops.find(ops.DEFAULT).default))
    parser.add_argument(
        "--tool",
        choices=BATCHES,
        help="the tool (default: emulator if there is no GPU, or with --gpu or --json; otherwise ncu)",
    )
    parser.add_argument(
        "--batch", type=int, help="size of the batch (default 1000; 10 for the sanitizer, 4 for the emulator)"
    )
    parser.add_argument(
        "--at",
        "--layer",
        nargs="+",
        metavar="NAME",
        help="names of problems, as shown by 'run.py list' (default all)",
    )
    parser.add_argument("--shapes", nargs="+", metavar="SIZES", help="problems as sizes, instead of --at")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="with NVIDIA's tools: the folder that has one folder per run (default profiles/)",
    )
    parser.add_argument(
        "--subtool",
        choices=(*sanitizer.SUBTOOLS, "all"),
        help="one of the sanitizer's checkers (default all)",
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help=f"with --tool emulator: the GPU whose times are estimated, one of {', '.join(GPUS)} (default "
        f"{GPU})",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="with --tool emulator: write all counters by line and array, and the estimated times, to FILE",
    )
    add_force(parser)
    add_log(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Profile and describe. Return 1 if the sanitizer found something."""
    variant = find_filled(variant_of(args))
    args.tool = args.tool or ("emulator" if args.gpu or args.json else _default_tool())
    _check(args, variant)
    problems = _problems(args, variant)
    if args.tool == "emulator":
        return _emulator(args, variant, problems)
    find_tool(PROGRAMS[args.tool])  # before any work
    job = Job(variant, problems, _folder(args.out or Path("profiles"), variant, args.tool))
    try:
        gpu = rehearse(job, may_crash=args.tool == "sanitizer")
    except MiniDnnError:
        job.folder.rmdir()
        raise
    head = [
        f"variant   {variant.name}: {variant.idea}",
        f"device    {gpu}",
        *(f"{name:<10}{problem}" for name, problem in problems.items()),
    ]
    print("\n".join(head), flush=True)
    with logged(args, [variant]) as trial:
        body, status = {"ncu": _ncu, "nsys": _nsys, "sanitizer": _sanitizer}[args.tool](job, args.subtool)
        trial.device, trial.ok, trial.verdict = gpu, status == 0, f"profiled with {args.tool}"
        trial.notes = [line for line in body if line.strip()]
        for name, problem in problems.items():
            trial.add(variant.name, Tried(problem=name, shape=problem.fields))
    (job.folder / "summary.txt").write_text("\n".join([*head, "", *body]) + "\n")
    print(f"\nkept in {job.folder}")
    return status


def _check(args: argparse.Namespace, variant: Variant) -> None:
    if variant.plan is None:
        raise UsageError(
            f"{variant.name} is NumPy and runs on the host, so it has no kernels to profile; try m1"
        )
    if args.subtool and args.tool != "sanitizer":
        raise UsageError(f"--subtool {args.subtool} needs --tool sanitizer; --tool is {args.tool}")
    if args.json and args.tool != "emulator":
        raise UsageError(f"--json {args.json} needs --tool emulator; --tool is {args.tool}")
    if args.out and args.tool == "emulator":
        raise UsageError(
            f"--out {args.out} is for reports of NVIDIA's tools; the emulator writes its counters to a file "
            "with --json FILE"
        )
    if args.gpu and args.tool != "emulator":
        raise UsageError(f"--gpu {args.gpu} needs --tool emulator; --tool is {args.tool}")
    if args.tool == "emulator" and variant.needs_gpu:
        raise UsageError(f"{variant.name} does not run on the emulator: {variant.needs_gpu}; try --tool ncu")


def _default_tool() -> str:
    """Counters of the GPU if there is one, otherwise those of the emulator."""
    try:
        with closing(open_device("cuda")):
            return "ncu"
    except DeviceError as error:
        print(f"tool      emulator (no GPU: {error})")
        return "emulator"


def _emulator(args: argparse.Namespace, variant: Variant, problems: Mapping[str, Any]) -> int:
    """Count in the emulator. Problems that would take too long are reported and skipped."""
    chosen = gpu(args.gpu or GPU)
    if chosen.arch < variant.min_arch:
        raise UsageError(
            f"{variant.name} needs a GPU of sm_{variant.min_arch} or newer, and {chosen.name} is "
            f"sm_{chosen.arch}; use --gpu to select another GPU"
        )
    check_output("--json", args.json, args.force)
    small = {name: problem for name, problem in problems.items() if problem.flops <= emulated.MOST_FLOPS}
    most = f"{emulated.MOST_FLOPS / 1e9:.0f} GFLOP"
    if not small:
        name, problem = next(iter(problems.items()))
        raise UsageError(
            f"{name}, {problem}, has {problem.flops / 1e9:.1f} GFLOP, and counting more than {most} takes "
            "too long; use smaller sizes with --shapes, or a smaller --batch. The counters show the same "
            "problems there"
        )
    print(f"variant   {variant.name}: {variant.idea}")
    print(f"device    emulator, counted; occupancy and times for {chosen.name}", flush=True)
    for name in (name for name in problems if name not in small):
        print(f"{name:<10}skipped: it has more than {most}, which takes too long here")
    found = {}
    with logged(args, [variant]) as trial:
        trial.device, trial.verdict = "emulator, counted", "counted; the result was not compared"
        for name, problem in small.items():
            larger = None if args.shapes or args.batch else variant.operation.course.get(name)
            profile = found[name] = emulated.profile(variant, problem, chosen, larger)
            solver = variant.solver(problem)
            whose = (
                [] if solver is variant else [f"kernels   of {solver.name}, which {variant.name} calls here"]
            )
            lines = _say(["", *whose, *emulated.summary(name, profile)])
            trial.notes += [line.strip() for line in lines if line.strip()]
            figures: Counter[str] = Counter()  # a kernel may be launched with several grids
            for kernel in profile.kernels:
                figures.update({f"{kernel.kernel}: {name}": n for name, n in kernel.metrics.items()})
            trial.add(variant.name, Tried(problem=name, shape=problem.fields, counters=dict(figures)))
    write_json("--json", args.json, emulated.as_json(variant, found))
    return 0


def _problems(args: argparse.Namespace, variant: Variant) -> Mapping[str, Any]:
    """Return the requested problems, or else those of the course that the variant accepts."""
    problems = problems_of(variant.operation, args.at, args.shapes, args.batch, BATCHES[args.tool])
    limits = {name: variant.limit_for(problem) for name, problem in problems.items()}
    refused = [name for name, limit in limits.items() if limit]
    if refused and (args.at or args.shapes or len(refused) == len(problems)):
        name = refused[0]
        raise UsageError(f"{variant.name} does not support {name}, {problems[name]}: {limits[name]}")
    return {name: problem for name, problem in problems.items() if not limits[name]}


def _folder(out: Path, variant: Variant, tool: str) -> Path:
    """Create a new folder, so that no earlier profile is lost."""
    name = variant.name if not Path(variant.name).is_absolute() else variant.folder.name
    folder = out / f"{name.replace('/', '-')}-{tool}-{datetime.now():%Y%m%d-%H%M%S}"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise MiniDnnError(
            f"the folder {folder} cannot be created: {error}; name another one with --out"
        ) from error
    return folder


def _say(lines: list[str]) -> list[str]:
    print("\n".join(lines), flush=True)
    return lines


def _ncu(job: Job, _: str | None) -> tuple[list[str], int]:
    lines: list[str] = []
    for layer in job.problems:
        print(f"\n{layer}: ncu runs each kernel some 40 times, to collect all counters ...", flush=True)
        launches, report = ncu.profile(job, layer)
        lines += _say([*_kernels(layer, launches), "", f"the whole report: ncu-ui {report}"])
    return lines, 0


def _kernels(layer: str, launches: list[ncu.Kernel]) -> list[str]:
    """Describe each kernel. A plan that works in parts launches the same kernel many times."""
    counts = Counter(launch.name for launch in launches)
    first = {launch.name: launch for launch in reversed(launches)}
    lines: list[str] = []
    for name, count in counts.items():
        head, *rest = advice.describe(first[name])
        lines += ["", f"{layer}: {head}" + (f" (the first of {count} launches)" if count > 1 else ""), *rest]
    return lines


def _nsys(job: Job, _: str | None) -> tuple[list[str], int]:
    print("\nnsys records one run of each layer ...", flush=True)
    found, report = nsys.profile(job)
    return _say(["", *nsys.describe(found), "", f"the timeline: nsys-ui {report}"]), 0


def _sanitizer(job: Job, subtool: str | None) -> tuple[list[str], int]:
    print("\neach checker monitors every access of every thread, which is slow ...", flush=True)
    lines: list[str] = []
    status = 0
    for name in sanitizer.SUBTOOLS if subtool in (None, "all") else [subtool]:
        outcome = sanitizer.check(job, name)
        lines += _say(sanitizer.describe(outcome, job.variant.source))
        if name == "initcheck" and (note := sanitizer.unseen(job.mapped())):
            lines += _say([f"note: {note}"])
        status = FINDINGS if outcome.findings else status
    return lines, status
