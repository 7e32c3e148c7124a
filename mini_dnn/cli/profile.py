"""Verb ``profile``: what a variant's kernels do on a GPU, by NVIDIA's tools, in plain words."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from mini_dnn.checking import sanitizer
from mini_dnn.cli.common import add_variant, problems_of, variant_of
from mini_dnn.device.tools import find_tool
from mini_dnn.errors import MiniDnnError, UsageError
from mini_dnn.profiling import advice, ncu, nsys
from mini_dnn.profiling.job import Job, rehearse
from mini_dnn.variant import Variant, find

FINDINGS = 1  # exit status: the checks are complete and found something
BATCHES = {"ncu": 1000, "nsys": 1000, "sanitizer": 10}  # the checkers slow a kernel down a hundred times
PROGRAMS = {"ncu": "ncu", "nsys": "nsys", "sanitizer": "compute-sanitizer"}


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "profile",
        help="profile or check a variant's kernels with NVIDIA's tools",
        description="Run one of NVIDIA's tools around a variant at its operation's problems, such as the two "
        "layers of the course's network, on random data, and say what it found. ncu: hardware counters of "
        "each kernel. nsys: what kernels and copies take. sanitizer: wrong accesses, races, barriers, "
        "uninitialised reads; status 1 if any.",
    )
    add_variant(parser, "m3")
    parser.add_argument("--tool", choices=BATCHES, required=True, help="which tool")
    parser.add_argument(
        "--batch", type=int, help="entries of the batch (default 1000; 10 for the sanitizer, which is slow)"
    )
    parser.add_argument(
        "--at",
        "--layer",
        nargs="+",
        metavar="NAME",
        help="problems by name, as 'run.py list' shows them (default all)",
    )
    parser.add_argument("--shapes", nargs="+", metavar="SIZES", help="problems by their sizes, instead")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("profiles"),
        metavar="DIR",
        help="default profiles/: a folder each run",
    )
    parser.add_argument(
        "--subtool",
        choices=(*sanitizer.SUBTOOLS, "all"),
        help="one of the sanitizer's checkers (default all)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Profile and describe; 1 if the sanitizer found something."""
    variant = find(variant_of(args))
    _check(args, variant)
    problems = _problems(args, variant)
    find_tool(PROGRAMS[args.tool])  # before any work
    job = Job(variant, problems, _folder(args.out, variant, args.tool))
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
    body, status = {"ncu": _ncu, "nsys": _nsys, "sanitizer": _sanitizer}[args.tool](job, args.subtool)
    (job.folder / "summary.txt").write_text("\n".join([*head, "", *body]) + "\n")
    print(f"\nkept in {job.folder}")
    return status


def _check(args: argparse.Namespace, variant: Variant) -> None:
    if variant.plan is None:
        raise UsageError(
            f"{variant.name} is NumPy and runs on the host: it has no kernels to profile; try m1"
        )
    if args.subtool and args.tool != "sanitizer":
        raise UsageError(f"--subtool {args.subtool} goes with --tool sanitizer; --tool is {args.tool}")


def _problems(args: argparse.Namespace, variant: Variant) -> Mapping[str, Any]:
    """The problems that are asked for; where none is, those of the course that the variant takes."""
    problems = problems_of(variant.operation, args.at, args.shapes, args.batch, BATCHES[args.tool])
    limits = {name: variant.limit_for(problem) for name, problem in problems.items()}
    refused = [name for name, limit in limits.items() if limit]
    if refused and (args.at or args.shapes or len(refused) == len(problems)):
        name = refused[0]
        raise UsageError(f"{variant.name} does not take {name}, {problems[name]}: {limits[name]}")
    return {name: problem for name, problem in problems.items() if not limits[name]}


def _folder(out: Path, variant: Variant, tool: str) -> Path:
    """A new folder, so that no earlier profile is lost."""
    name = variant.name if not Path(variant.name).is_absolute() else variant.folder.name
    folder = out / f"{name.replace('/', '-')}-{tool}-{datetime.now():%Y%m%d-%H%M%S}"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise MiniDnnError(f"the folder {folder} cannot be made: {error}; name another with --out") from error
    return folder


def _say(lines: list[str]) -> list[str]:
    print("\n".join(lines), flush=True)
    return lines


def _ncu(job: Job, _: str | None) -> tuple[list[str], int]:
    lines: list[str] = []
    for layer in job.problems:
        print(f"\n{layer}: ncu runs each kernel some 40 times, for one counter after another ...", flush=True)
        launches, report = ncu.profile(job, layer)
        lines += _say([*_kernels(layer, launches), "", f"the whole report: ncu-ui {report}"])
    return lines, 0


def _kernels(layer: str, launches: list[ncu.Kernel]) -> list[str]:
    """Lines about each kernel: a plan that works in parts launches it many times, all much alike."""
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
    print("\neach checker runs every thread's accesses in slow motion ...", flush=True)
    lines: list[str] = []
    status = 0
    for name in sanitizer.SUBTOOLS if subtool in (None, "all") else [subtool]:
        outcome = sanitizer.check(job, name)
        lines += _say(sanitizer.describe(outcome, job.variant.source))
        status = FINDINGS if outcome.findings else status
    return lines, status
