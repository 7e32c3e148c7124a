"""Check a variant on a GPU: Compute Sanitizer's checkers around it, its results against float64."""

from __future__ import annotations

import pickle
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mini_dnn.checking import sanitizer
from mini_dnn.checking.check import SHAPES, Progress, Report, Result, compare, inputs
from mini_dnn.checking.verdicts import Run, verdicts
from mini_dnn.device.emulator.explain import CURES, Finding
from mini_dnn.errors import MiniDnnError
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.profiling import tools
from mini_dnn.variant import Variant

PROGRAM = ("-m", "mini_dnn.checking.workload")
STAGES = 1 + len(sanitizer.SUBTOOLS)  # what progress counts
LIMIT_S, SHAPE_LIMIT_S = 600.0, 60.0  # of a process: with all shapes, and its compiler; with one
REGISTERS = "a block's threads need more registers than an SM has: take a smaller block, or __launch_bounds__"
ENDLESS = "look for a loop whose end is never reached, or a wait for what never comes"


@dataclass(frozen=True)
class Watched:
    """The program that a checker watches: the variant at some shapes."""

    variant: Variant
    shapes: tuple[ConvShape, ...]
    seed: int
    folder: Path

    def command(self, *flags: str) -> list[str]:
        """The command line of the program."""
        words = [sys.executable, *PROGRAM, str(self.variant.folder)]
        words += ["--seed", str(self.seed), "--runs", str(self._file)]
        shapes = [",".join(map(str, vars(shape).values())) for shape in self.shapes]
        return [*words, *flags, "--shapes", *shapes]

    @property
    def limit_s(self) -> float:
        """When to give up."""
        return LIMIT_S if len(self.shapes) > 1 else SHAPE_LIMIT_S

    def each(self) -> Iterator[Watched]:
        """The same at one shape at a time, as a failure leaves the GPU's context unusable."""
        for number, shape in enumerate(self.shapes):
            folder = self.folder / str(number)
            folder.mkdir(exist_ok=True)
            yield replace(self, shapes=(shape,), folder=folder)

    def forget(self) -> None:
        """Remove what an earlier run of the program wrote."""
        self._file.unlink(missing_ok=True)

    def runs(self) -> list[Run]:
        """What the program wrote, up to its first failure; empty if it did not get that far."""
        runs: list[Run] = pickle.loads(self._file.read_bytes()) if self._file.is_file() else []
        return runs

    @property
    def _file(self) -> Path:
        return self.folder / "runs.pickle"


def check_cuda(
    variant: Variant, shapes: Sequence[ConvShape] = SHAPES, seed: int = 0, progress: Progress | None = None
) -> Report:
    """Run a variant on the GPU at each shape under each of Compute Sanitizer's checkers.

    Parameters
    ----------
    progress
        Called with the number of `STAGES` that are done.

    Raises
    ------
    MiniDnnError
        There is no compute-sanitizer or no GPU, the kernel does not compile, or a checker fails. The
        messages of the checkers are then kept, in a folder that the error names.
    """
    tools.find_tool("compute-sanitizer")
    accepted = tuple(shape for shape in dict.fromkeys(shapes) if not variant.limit_for(shape))
    folder = Path(tempfile.mkdtemp(prefix="mini_dnn-check-"))
    work = Watched(variant, accepted, seed, folder)
    try:
        runs = _plain(work) if accepted else []
    except MiniDnnError:
        shutil.rmtree(folder)  # no checker has written anything
        raise
    found = _findings(work, runs, progress)
    shutil.rmtree(folder)
    results = [
        Result(shape, refused=limit)
        if (limit := variant.limit_for(shape))
        else Result(shape, next(iter(found[shape]), None), more=tuple(found[shape][1:]))
        for shape in shapes
    ]
    device, arch = (runs[0].device, runs[0].arch) if runs else ("no GPU was needed", 0)
    return Report(variant.name, seed, tuple(results), device, arch)


def _findings(work: Watched, runs: list[Run], progress: Progress | None) -> dict[ConvShape, list[Finding]]:
    """What the checkers find, and the comparison where they find nothing."""
    found = {run.shape: [run.launch] if run.launch else [] for run in runs}
    todo = tuple(shape for shape, findings in found.items() if not findings)
    for stage, subtool in enumerate(sanitizer.SUBTOOLS if todo else (), 1):
        if progress:
            progress(stage)
        for shape, findings in _watched(replace(work, shapes=todo), subtool):
            found[shape] += findings
    for run in runs:
        if not found[run.shape]:
            found[run.shape] += filter(None, [_result(work.variant, run, work.seed)])
    if progress:
        progress(STAGES)
    return found


def _plain(work: Watched) -> list[Run]:
    """The runs with no checker around, so that the program's own errors are seen plainly."""
    work.forget()
    done = tools.run(work.command(), limit_s=work.limit_s)
    if done.timed_out and len(work.shapes) == 1:
        what = f"the kernels did not come to their end within {work.limit_s:g} s"
        return [Run(work.shapes[0], "GPU", 0, launch=Finding("endless", what, cure=ENDLESS))]
    if done.status and not done.timed_out:
        message = done.output.partition("error: ")[2] or done.output
        raise MiniDnnError(f"{work.variant.name} cannot be checked on a GPU here: {message.strip()}")
    runs = work.runs()
    if len(runs) < len(work.shapes):
        return [run for one in work.each() for run in _plain(one)]
    return runs


def _watched(work: Watched, subtool: str) -> Iterator[tuple[ConvShape, list[Finding]]]:
    """What a checker finds at each shape: at all in one process, and one by one if that is not clean."""
    work.forget()
    outcome = sanitizer.check(work, subtool, work.limit_s)
    if len(work.shapes) == 1:
        buffers = [allocation for run in work.runs() for allocation in run.allocations]
        yield work.shapes[0], verdicts(outcome.records, work.variant.source, buffers)
    elif outcome.records or len(work.runs()) < len(work.shapes):
        for one in work.each():
            yield from _watched(one, subtool)


def _result(variant: Variant, run: Run, seed: int) -> Finding | None:
    """What no checker saw."""
    if run.y is None and "resources requested" in run.failure:
        return Finding("launch", run.failure, cure=REGISTERS)
    if run.y is None:
        return Finding("fault", run.failure, cure=CURES["fault"])
    return compare(*inputs(run.shape, seed), run.y, variant)
