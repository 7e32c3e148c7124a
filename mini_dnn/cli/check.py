"""Verb ``check``: find mistakes in a kernel, with or without a GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.theme import Theme

from mini_dnn.checking.causes import effects_in_words
from mini_dnn.checking.check import check
from mini_dnn.checking.launches import SHARED_LIMIT
from mini_dnn.checking.on_gpu import check_cuda
from mini_dnn.checking.results import Report
from mini_dnn.checking.schedules import SCHEDULES
from mini_dnn.cli.common import (
    DIFFERS,
    add_force,
    add_variant,
    check_arch,
    check_output,
    find_filled,
    problems_of,
    seed,
    variant_of,
    write_json,
)
from mini_dnn.cli.log import add_log, logged
from mini_dnn.cli.watch import add_watch
from mini_dnn.device.emulator.checked import STEP_LIMIT, CheckedEmulator
from mini_dnn.device.finding import Finding, Party, shown_names
from mini_dnn.errors import UsageError
from mini_dnn.measuring.work_log import Tried
from mini_dnn.ops.hints import SAME_AS
from mini_dnn.paths import program
from mini_dnn.progress import Bar
from mini_dnn.variant import exercise


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "check",
        help="find mistakes in a kernel, with or without a GPU",
        description="Run a variant on the emulator in checked mode, or on a GPU under Compute Sanitizer, at "
        "irregular shapes. It finds accesses out of bounds, races, divergent barriers, uninitialised reads, "
        "invalid launches, unwritten outputs and wrong results. Exit status: 0 clean; 1 findings, or too few "
        "shapes were run for a verdict; 2 error, such as wrong use.",
    )
    add_variant(parser)
    parser.add_argument(
        "--shapes",
        nargs="+",
        metavar="SIZES",
        help="problems as sizes, in the order that 'run.py list' shows: 2,1,9,21,3,2,5 (default: irregular "
        "ones, and ordinary ones if the variant refuses one of these or fails at one)",
    )
    parser.add_argument(
        "--device",
        choices=("emulator", "cuda"),
        default="emulator",
        help="emulator (default, even with a GPU, because it finds more), or cuda: compute-sanitizer",
    )
    parser.add_argument(
        "--arch",
        type=int,
        choices=SHARED_LIMIT,
        help="the GPU whose limits the emulator applies, by compute capability: 75 is 7.5 "
        "(default 90); cuda uses the installed GPU",
    )
    parser.add_argument(
        "--seed", type=seed, default=0, help="seed of the inputs and of the random order (default 0)"
    )
    parser.add_argument(
        "--schedules",
        nargs="+",
        choices=SCHEDULES,
        help="orders in which the emulator runs blocks and threads (default: all three)",
    )
    parser.add_argument(
        "--limit",
        type=_steps,
        metavar="STEPS",
        help="number of memory accesses and barrier arrivals after which the emulator treats a block as "
        f"endless (default {STEP_LIMIT:,})",
    )
    parser.add_argument(
        "--large",
        action="store_true",
        help="on the emulator, also run some blocks, including the last ones, of problems with more than "
        "2^31 elements, or of those of --shapes; memory is allocated only where it is touched",
    )
    parser.add_argument(
        "--problems",
        action="store_true",
        help="also print each finding as FILE:LINE: error: WHAT, for editors",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the verdict to FILE")
    add_force(parser)
    add_log(parser)
    add_watch(parser, lambda args: args.name or args.impl)
    parser.set_defaults(run=run)


def _steps(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a number of steps: expected an integer of 1 or more"
        )
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Check and print the verdict. Return 1 if something was found, or if too little ran for a verdict."""
    variant = find_filled(variant_of(args))
    if variant.plan is None:
        raise UsageError(
            f"{variant.name} is NumPy and runs on the host, so it has no kernels to check; try m1"
        )
    check_output("--json", args.json, args.force)
    operation = variant.operation
    problems = list(problems_of(operation, shapes=args.shapes).values()) if args.shapes else None
    if args.device == "cuda":
        for flag in ("arch", "schedules", "limit", "large"):
            if getattr(args, flag):
                raise UsageError(f"--{flag} is for the emulator; --device cuda uses the installed GPU")
    if args.large and problems is None and not operation.large:
        raise UsageError(f"--large: {operation.name} names no such problem; give sizes with --shapes")
    if args.problems:
        print(f"checking {variant.name}", flush=True)
    with logged(args, [variant]) as trial:
        with Bar("checking", len(problems or operation.check)) as bar:
            if args.device == "cuda":
                report = check_cuda(variant, problems, args.seed, bar.update)
            else:
                report = check(
                    variant,
                    problems,
                    args.seed,
                    bar.update,
                    check_arch(variant, args.arch or CheckedEmulator.arch),
                    args.schedules or SCHEDULES,
                    args.limit or STEP_LIMIT,
                    large=args.large,
                )
        trial.device, trial.ok = report.device, report.clean
        trial.verdict = "clean" if report.clean else _summary(report)
        trial.notes = [f"{finding.kind}: {finding.what}" for finding in report.findings]
        for result in report.ran:
            trial.add(variant.name, Tried(problem=str(result.problem), shape=result.problem.fields))
    show(report, Console(theme=THEME, highlighter=Verdict()))
    if args.problems:
        print(*problems_in(report, variant.source), sep="\n", end="\n" if report.findings else "")
    write_json("--json", args.json, report.as_dict())
    if report.clean and (reference := exercise.reference(variant.folder)):
        if operation.large and not args.large and args.device != "cuda":
            print(f"next: try sizes of more than 2^31 elements: {program('check', variant.name, '--large')}")
        print(f"next: compare it with the reference: {program('diff', variant.name, reference)}")
    return 0 if report.clean else DIFFERS


class Verdict(RegexHighlighter):
    """The colours of a verdict on a terminal."""

    base_style = "verdict."
    highlights = (
        r"^(?P<kind>[A-Z][A-Z -]+?)(?: \(\+\d+\))? {2,}",
        r"^(?P<number>\d+\.) (?P<kind>[\w-]+):",
        r"^ {3}(?P<label>here|and|also|shape|cure|note) ",
        r"^ {3}(?:here|and) +(?P<place>\S+:\d+) \| (?P<code>.*)$",
        r"^(?P<clean>clean) ",
    )


THEME = Theme(
    {
        "verdict.kind": "bold red",
        "verdict.number": "bold",
        "verdict.label": "dim",
        "verdict.place": "cyan",
        "verdict.code": "yellow",
        "verdict.clean": "green",
    }
)


def show(report: Report, console: Console) -> None:
    """Print the verdict, without colours if the console is not a terminal."""
    for line in describe(report):
        console.print(line, soft_wrap=True, markup=False, emoji=False)


def describe(report: Report) -> list[str]:
    """Return the verdict in lines for a student."""
    lines = []
    for result in report.results:
        verdict = f"not run: {result.refused}" if result.refused else "clean"
        if result.finding:
            more = f" (+{len(result.more)})" if result.more else ""
            verdict = result.finding.kind.upper() + more
        some = ", some of its blocks" if result.sampled else ""
        by = f", by {result.solver}" if result.solver else ""
        lines.append(f"{verdict:<15} {result.problem}{some}{by}")
    for number, (finding, problems) in enumerate(report.findings.items(), 1):
        lines += ["", f"{number}. {finding.kind}: {finding.what}", *_details(finding)]
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        lines += [f"   shape    {problems[0]}{more}", f"   cure     {finding.cure}"]
    noted = ["", f"note: {report.note}"] if report.note else []
    return [*lines, *noted, "", f"{report.variant}: {_summary(report)} (seed {report.seed})"]


def problems_in(report: Report, source: Path) -> list[str]:
    """Return a line for each place of a finding, in the format of compiler errors.

    A finding without a place refers to the kernel's first line.
    """
    paths = {name: path for path, name in shown_names(source).items()}
    paths["variant.py"] = source.with_name("variant.py")
    lines = []
    for finding in report.findings:
        told = f"{finding.kind}: {finding.what}"
        own, other = (party.place if party else None for party in (finding.own, finding.other))
        at = f"{paths.get(own.file, source)}:{own.line}" if own else f"{source}:1"
        lines.append(f"{at}: error: {told}")
        if other:
            lines.append(f"{paths.get(other.file, source)}:{other.line}: note: the other one of '{told}'")
    return lines


def _summary(report: Report) -> str:
    """The last line: the findings, at how many problems, and whether that is enough for a verdict."""
    count, ran, refused = len(report.findings), len(report.ran), len(report.results) - len(report.ran)
    found = f"{count} finding{'s' * (count > 1)}" if count else "no findings"
    where = f"at {ran} shape{'s' * (ran != 1)}"
    others = sum(bool(result.solver) for result in report.ran)
    some = "all" if others == ran else others
    where += f", {some} of them by the kernels of other variants" if others else ""
    where += f"; {refused} more {'was' if refused == 1 else 'were'} not run" if refused else ""
    if report.enough:
        return f"{found} {where}"
    least = f"{report.least} by its own kernels; --shapes selects sizes" if others else f"{report.least}"
    return f"not enough was checked: {found} {where}, but a verdict needs {least}"


def _details(finding: Finding) -> list[str]:
    lines = []
    if finding.own:
        lines += _party("here", finding.own, finding.kernel)
    if finding.other:
        lines += _party("and", finding.other, finding.kernel)
    if finding.effects:
        lines.append(f"   also     it also causes: {effects_in_words(finding)}; fix this first")
    guesses = [note for effect in finding.effects for note in effect.notes if note.startswith(SAME_AS)]
    return lines + [f"   note     {note}" for note in (*finding.notes, *guesses)]


def _party(word: str, party: Party, kernel: str) -> list[str]:
    thread = f", thread {party.thread}" if party.thread else ""
    who = f"block {party.block}{thread} of {kernel}" if party.block else ""
    lines = [who] if who else []
    if party.place:
        lines = [f"{party.place.file}:{party.place.line} | {party.place.code}", *lines]
    return [f"   {word if i == 0 else '':<9}{line}" for i, line in enumerate(lines)]
