"""Check a variant on a GPU: with Compute Sanitizer's checkers, and its results against float64."""

from __future__ import annotations

import pickle
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mini_dnn.checking import sanitizer
from mini_dnn.checking.causes import each_once
from mini_dnn.checking.check import Progress
from mini_dnn.checking.judge import Example
from mini_dnn.checking.results import LEAST, Report, Result, own_problems, refusal, with_solvers
from mini_dnn.checking.verdicts import Run, verdicts
from mini_dnn.device import tools
from mini_dnn.device.cures import CURES
from mini_dnn.device.finding import Finding
from mini_dnn.errors import MiniDnnError
from mini_dnn.variant import Variant

PROGRAM = ("-m", "mini_dnn.checking.workload")
STAGES = 1 + len(sanitizer.SUBTOOLS)  # the units of progress
LIMIT_S = 600.0  # for a process, including its start and compilation, which take long on a busy machine
KERNELS_S = 60.0  # for the kernels at one problem, from their start
REGISTERS = "a block's threads need more registers than an SM has: use a smaller block, or __launch_bounds__"
ENDLESS = "look for a loop that never ends, or a wait for an event that never happens"


@dataclass(frozen=True)
class Program:
    """The program that a checker runs: the variant at some problems."""

    variant: Variant
    problems: tuple[Any, ...]
    seed: int
    folder: Path

    def command(self, *flags: str) -> list[str]:
        """The command line of the program."""
        words = [sys.executable, *PROGRAM, str(self.variant.folder)]
        words += ["--seed", str(self.seed), "--runs", str(self._file)]
        return [*words, *flags, "--shapes", *(problem.text for problem in self.problems)]

    def each(self) -> Iterator[Program]:
        """Yield the program for one problem at a time, because a failure makes the GPU's context unusable."""
        for number, problem in enumerate(self.problems):
            folder = self.folder / str(number)
            folder.mkdir(exist_ok=True)
            yield replace(self, problems=(problem,), folder=folder)

    def forget(self) -> None:
        """Remove the files of an earlier run of the program."""
        self._file.unlink(missing_ok=True)

    def runs(self) -> list[Run]:
        """The results that the program wrote, up to its first failure.

        They are empty if it did not get that far.
        """
        runs: list[Run] = pickle.loads(self._file.read_bytes()) if self._file.is_file() else []
        return runs

    @property
    def _file(self) -> Path:
        return self.folder / "runs.pickle"


def check_cuda(
    variant: Variant, problems: Sequence[Any] | None = None, seed: int = 0, progress: Progress | None = None
) -> Report:
    """Run a variant on the GPU at each problem under each of Compute Sanitizer's checkers.

    Parameters
    ----------
    problems
        The problems; the default is that of `check`.
    progress
        Called with the number of complete stages, and the number of all stages.

    Raises
    ------
    MiniDnnError
        There is no compute-sanitizer or no GPU, the kernel does not compile, or a checker fails. In the last
        case, the error names a folder with the messages of the checkers.
    """
    tools.find_tool("compute-sanitizer")
    operation = variant.operation
    results, seen = _round(variant, operation.check if problems is None else problems, seed, progress)
    if problems is None and any(result.refused or result.finding for result in results):
        more, also = _round(variant, [p for p in operation.spare if p not in operation.check], seed, progress)
        results, seen = [*results, *more], seen or also
    results = with_solvers(variant, results)
    if problems is None and (own := own_problems(variant, results)):
        more, also = _round(variant, own, seed, progress)
        results, seen = [*results, *more], seen or also
    run = seen or Run(None, "no GPU was needed", 0)
    least = 1 if problems is not None else LEAST
    note = sanitizer.unseen(run.mapped)
    return Report(
        variant.name,
        operation.name,
        seed,
        tuple(results),
        run.device,
        run.arch,
        least,
        operation.traits,
        note,
    )


def _round(
    variant: Variant, problems: Sequence[Any], seed: int, progress: Progress | None
) -> tuple[list[Result], Run | None]:
    """Return a result for each problem, and the run at the first one if a GPU was needed."""
    limits = {problem: refusal(variant, problem) for problem in problems}
    accepted = tuple(problem for problem, limit in limits.items() if not limit)
    folder = Path(tempfile.mkdtemp(prefix="mini_dnn-check-"))
    work = Program(variant, accepted, seed, folder)
    try:
        runs = _plain(work) if accepted else []
    except BaseException:  # also Ctrl-C; no checker has written a message
        shutil.rmtree(folder, ignore_errors=True)
        raise
    found = _findings(work, runs, progress)
    shutil.rmtree(folder)
    results = [
        Result(problem, refused=limit)
        if limit
        else Result(problem, next(iter(found[problem]), None), more=tuple(found[problem][1:]))
        for problem, limit in limits.items()
    ]
    return results, runs[0] if runs else None


def _findings(work: Program, runs: list[Run], progress: Progress | None) -> dict[Any, list[Finding]]:
    """The findings of the checkers, or those of the comparison if the checkers find nothing."""
    found = {run.problem: [run.launch] if run.launch else [] for run in runs}
    todo = tuple(problem for problem, findings in found.items() if not findings)
    for stage, subtool in enumerate(sanitizer.SUBTOOLS if todo else (), 1):
        if progress:
            progress(stage, STAGES)
        for problem, findings in _watched(replace(work, problems=todo), subtool):
            found[problem] += findings
    for run in runs:
        if not found[run.problem]:
            found[run.problem] += filter(None, [_result(work.variant, run, work.seed)])
    if progress:
        progress(STAGES, STAGES)
    return {problem: each_once(findings) for problem, findings in found.items()}


def _plain(work: Program) -> list[Run]:
    """The runs without a checker, so that the program's own errors are visible."""
    work.forget()
    done = tools.run(work.command("--kernels-s", str(KERNELS_S)), limit_s=LIMIT_S)
    endless, alone = done.status == -signal.SIGALRM, len(work.problems) == 1
    if endless and alone:
        what = f"the kernels did not finish within {KERNELS_S:g} s"
        return [Run(work.problems[0], "GPU", 0, launch=Finding("endless", what, cure=ENDLESS))]
    if done.timed_out and alone:
        raise MiniDnnError(
            f"{work.variant.name} cannot be checked on a GPU here: {work.problems[0]} took more than "
            f"{LIMIT_S:g} s, although its kernels may take only {KERNELS_S:g}; try again when the machine is "
            "less busy, or use smaller shapes"
        )
    if done.status and not done.timed_out and not endless:
        message = done.output.partition("error: ")[2] or done.output
        raise MiniDnnError(f"{work.variant.name} cannot be checked on a GPU here: {message.strip()}")
    runs = work.runs()
    if len(runs) < len(work.problems):
        return [run for one in work.each() for run in _plain(one)]
    return runs


def _watched(work: Program, subtool: str) -> Iterator[tuple[Any, list[Finding]]]:
    """The findings of a checker at each problem: all in one process, and one by one if that is not clean."""
    work.forget()
    if len(work.problems) == 1:
        outcome = sanitizer.check(work, subtool, LIMIT_S)
        buffers = [allocation for run in work.runs() for allocation in run.allocations]
        yield work.problems[0], verdicts(outcome.records, work.variant.source, buffers)
    elif not _is_clean(work, subtool):
        for one in work.each():
            yield from _watched(one, subtool)


def _is_clean(work: Program, subtool: str) -> bool:
    """Whether a checker gets through all problems in one process, and finds nothing."""
    try:
        outcome = sanitizer.check(work, subtool, LIMIT_S)
    except MiniDnnError:  # they take too long together, or one of them stops the checker
        return False
    return not outcome.records and len(work.runs()) == len(work.problems)


def _result(variant: Variant, run: Run, seed: int) -> Finding | None:
    """The finding about the result, if no checker found anything."""
    if "resources requested" in run.failure:
        return Finding("launch", run.failure, cure=REGISTERS)
    if run.outputs is None or run.failure:
        return Finding("fault", run.failure, cure=CURES["fault"])
    operation = variant.operation
    arrays = operation.inputs(run.problem, seed)
    example = Example(operation, run.problem, arrays, variant.precision)
    return example.judge(run.outputs) or run.again
