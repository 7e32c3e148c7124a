"""Check a variant on the checked emulator, and its results against float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from mini_dnn.checking.causes import OF_OUTPUTS
from mini_dnn.checking.chance import by_absent_lanes, by_chance
from mini_dnn.checking.large import GPU_BYTES, try_some
from mini_dnn.checking.launches import check_launches, shared_limit, static_finding
from mini_dnn.checking.limits import Verdict, check_limits, verdict, with_defines
from mini_dnn.checking.repeat import Examples, Runs, caught
from mini_dnn.checking.results import LEAST, Report, Result, own_problems, refusal, with_solvers
from mini_dnn.checking.schedules import SCHEDULES, all_schedules, with_cause
from mini_dnn.checking.streams import vain_wait
from mini_dnn.device.emulator.checked import STEP_LIMIT, CheckedEmulator
from mini_dnn.device.emulator.checked_streams import StreamEmulator
from mini_dnn.device.emulator.symbols import static_shared_bytes
from mini_dnn.device.finding import Finding
from mini_dnn.errors import LimitError, SharedMemoryError, VariantError
from mini_dnn.ops import Arrays, Operation, Trial
from mini_dnn.running.parts import largest_part
from mini_dnn.running.runnable import check_runnable
from mini_dnn.running.runner import run_plans
from mini_dnn.variant import Planned, Variant

RUNS = 2  # on the same memory
# At the first problem, in the first order: a later run may show what an earlier one leaves behind
RUNS_AT_FIRST = 4
# Bytes of a problem that takes so long that one run must be enough, if there are other problems
LARGE = 4 << 20
AGAIN = "skipped because of the endless loop that was found"

Progress = Callable[[int, int], None]  # the number of complete problems, and of all


def check(
    variant: Variant,
    problems: Sequence[Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    arch: int = CheckedEmulator.arch,
    schedules: Sequence[str] = SCHEDULES,
    limit: int = STEP_LIMIT,
    ask_nvcc: bool = True,
    large: bool = False,
) -> Report:
    """Run a variant on the checked emulator at each problem, in each order, up to the first finding there.

    Parameters
    ----------
    problems
        The problems; by default those of the operation, ordinary ones if the variant refuses some or fails,
        and particular ones if the variant calls another one.
    seed
        The seed of the inputs and of the random order.
    schedules
        Orders of blocks and threads, from `SCHEDULES`.
    arch
        The compute capability, times ten, whose limits launches must respect: see `check_launches`.
    limit
        The number of memory accesses and barrier arrivals after which a block counts as endless.
    ask_nvcc
        Whether nvcc, if installed, checks what it rejects, and how many registers kernels need.
    large
        Whether only some blocks of `problems` run, in memory that is allocated where it is touched. If
        `problems` is None, this adds the operation's large ones.

    Raises
    ------
    VariantError, DeviceError
        The kernel does not compile, or the variant cannot run on the emulator at all.
    """
    operation = variant.operation
    shared = shared_limit(arch)

    def plan(problem: Any) -> Planned | str:
        return refusal(variant, problem) or variant.planned(problem, shared)

    device = StreamEmulator(limit)
    device.arch, device.max_shared_bytes = arch, shared
    try:
        check_runnable(variant, device)
        trials = _trials(operation, problems, large)
        run = _Run(operation, device, seed, schedules, plan, progress, trials, looks=True, ask_nvcc=ask_nvcc)
        ordinary = list(operation.check) if problems is None else []
        results = run.all([*ordinary, *trials] if problems is None else problems)
        if any(result.refused or result.finding for result in results[: len(ordinary)]):
            results += run.all([p for p in operation.spare if p not in operation.check], results)
        results = with_solvers(variant, results)
        if problems is None:
            results += run.all(own_problems(variant, results), results)
    finally:
        device.close()
    least = 1 if problems is not None else LEAST
    return Report(
        variant.name, operation.name, seed, tuple(results), device.description, arch, least, operation.traits
    )


def _trials(operation: Operation, problems: Sequence[Any] | None, large: bool) -> dict[Any, Trial]:
    """Return the trials that belong to a check, by their problems."""
    if problems is not None:
        return {problem: Trial(problem, sampled=True) for problem in problems} if large else {}
    found = [*operation.trials, *(Trial(one, sampled=True) for one in operation.large if large)]
    return {trial.problem: trial for trial in found}


def check_plans(operation: Operation, planned: Sequence[Planned], seed: int) -> Report:
    """Check plans that were computed elsewhere, on the emulator that represents a GPU.

    The kernel file is already compiled and judged, and is not compiled for a GPU.

    Raises
    ------
    VariantError, DeviceError
        The kernel does not compile, or was not judged.
    """
    known: Mapping[Any, Planned] = {one.problem: one for one in planned}

    def plan(problem: Any) -> Planned:
        if problem not in known:
            raise VariantError(f"there is no plan for {problem}, a part of a batch that had to be split")
        return known[problem]

    device = StreamEmulator()
    device.judged_only = True
    try:
        run = _Run(operation, device, seed, SCHEDULES, plan, None)
        results = run.all(list(known))
    finally:
        device.close()
    name = planned[0].name if planned else ""
    return Report(name, operation.name, seed, tuple(results), device.description, device.arch)


@dataclass(frozen=True)
class _Run:
    """Checks problems of an operation, one after the other."""

    operation: Operation
    device: StreamEmulator
    seed: int
    schedules: Sequence[str]
    plan: Callable[[Any], Planned | str]  # returns the exceeded limit, in words, for a refused problem
    progress: Progress | None
    trials: Mapping[Any, Trial] = field(default_factory=dict)  # by their problems
    looks: bool = False  # whether to inspect the kernel file as a CUDA compiler does, which needs a compiler
    ask_nvcc: bool = False

    def all(self, problems: Sequence[Any], before: Sequence[Result] = ()) -> list[Result]:
        """A result for each problem, one after the other."""
        plans = {problem: self._planned(problem) for problem in problems}
        accepted = [planned for planned in plans.values() if isinstance(planned, Planned)]
        said = self._built(accepted) if accepted else Verdict()
        results: list[Result] = []
        for problem in problems:
            results.append(self._result(problem, plans[problem], [*before, *results], said))
            if self.progress:
                self.progress(len(before) + len(results), len(before) + len(problems))
        return results

    def _planned(self, problem: Any) -> Planned | str:
        """The plan for a problem, or for the largest part of a batch if only some blocks run."""
        found = self.plan(problem)
        if isinstance(found, Planned) or not self._trial(problem).sampled:
            return found
        try:
            part = self._part(problem)
            return part(largest_part(part, problem, GPU_BYTES))
        except LimitError:
            return found

    def _built(self, planned: Sequence[Planned]) -> Verdict:
        """The verdict of a CUDA compiler on the first problem's code, while g++ compiles the code of all."""
        first = planned[0]
        if not self.looks:
            self.device.build(first.source, [one.defines for one in planned])
            return Verdict()
        with ThreadPoolExecutor(1) as other:
            words = partial(self.device.words, first.source, first.defines)
            asked = other.submit(verdict, first.source, first.defines, self.device.arch, words, self.ask_nvcc)
            # All at once, because one after the other takes most of a check's time
            self.device.build(first.source, [one.defines for one in planned])
            return asked.result()

    def _result(
        self, problem: Any, planned: Planned | str, before: Sequence[Result], said: Verdict
    ) -> Result:
        if isinstance(planned, str):
            return Result(problem, refused=planned)
        if any(result.finding and result.finding.kind == "endless" for result in before):
            return Result(problem, refused=AGAIN)
        if said.findings:
            return Result(problem, said.findings[0], more=said.findings[1:])
        if self.looks and planned.defines != said.defines:
            words = partial(self.device.words, planned.source, planned.defines)
            said = with_defines(said, planned.source, words)
        launch = self._launch(problem, planned, said)
        if launch:
            return Result(problem, launch)

        trial = self._trial(problem)
        if trial.sampled:
            return try_some(self.device, self._part(problem), problem, self.operation, self.seed)
        arrays = self._inputs(trial, planned.precision)
        others = any(not result.refused for result in before)
        examples = Examples(self.operation, planned, arrays, self.seed)

        def in_order(schedule: str) -> Finding | None:
            self.device.set_schedule(SCHEDULES.index(schedule), self.seed)
            runs = self._runs(planned, others, schedule == self.schedules[0])
            return self._in_order(problem, planned, examples, runs)

        self.device.forget_undefined()
        found = all_schedules(in_order, self.schedules)
        if all(finding.kind in OF_OUTPUTS for finding in found):
            is_wrong = bool(found) and not any(result.finding for result in before)
            part, (example,) = self._part(problem), examples.of(1)
            self.device.set_schedule(0, self.seed)
            cause = by_absent_lanes(self.device, part, example) if found else None
            cause = cause or by_chance(self.device, part, example, is_wrong)
            found = with_cause(cause, found) if cause else found
        return Result(problem, found[0] if found else None, more=tuple(found[1:]))

    def _runs(self, planned: Planned, others: bool, is_first_order: bool) -> int:
        """The number of runs of a plan on the same memory in an order; whether other problems ran before."""
        if planned.nbytes > LARGE:
            return 1 if others or not is_first_order else RUNS
        return RUNS if others or not is_first_order else RUNS_AT_FIRST

    def _launch(self, problem: Any, planned: Planned, said: Verdict) -> Finding | None:
        """The first mistake that can be found before any thread runs."""
        try:
            module = self.device.compile(planned.source, planned.defines)
        except SharedMemoryError as error:
            return static_finding(planned.source, error)
        if wait := vain_wait(planned):
            return wait
        static = lambda kernel: static_shared_bytes(module.path, kernel)  # noqa: E731
        found = check_launches(self._part(problem), planned.problem.batch, self.device.arch, static)
        return found or check_limits(planned, said, self.device.variable_bytes(module))

    def _trial(self, problem: Any) -> Trial:
        return self.trials.get(problem, Trial(problem))

    def _inputs(self, trial: Trial, precision: str) -> Arrays:
        if trial.draw:
            return trial.draw(trial.problem, precision, np.random.default_rng(self.seed))
        return self.operation.inputs(trial.problem, self.seed)

    def _in_order(self, problem: Any, planned: Planned, examples: Examples, runs: int) -> Finding | None:
        """The first finding of these runs in the selected order."""
        self.device.axes = {name: array.axes for name, array in planned.arrays.items()}
        if planned.fits(self.device.free_bytes()):
            return Runs(planned, self.device).check(examples.of(runs))
        (example,) = examples.of(1)
        outputs: Arrays = {}

        def in_parts() -> None:
            nonlocal outputs
            self.device.follow_streams(False)
            outputs = run_plans(self._part(problem), problem, example.arrays, self.device).outputs

        return caught(in_parts, planned, self.device) or example.judge(outputs)

    def _part(self, problem: Any) -> Callable[[int], Planned]:
        """Return a function that gives the plan for this many entries of a problem's batch."""

        def part(n: int) -> Planned:
            planned = self.plan(problem.with_batch(n))
            if isinstance(planned, str):
                raise LimitError(f"a part of {problem} with {n} entries is refused: {planned}")
            return planned

        return part
