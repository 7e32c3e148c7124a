"""The checks of one variant. Each returns messages for the student and for staff."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mini_dnn.errors import DeviceError, VariantError
from mini_dnn.grading.asked import Performance, Rubric, Trials, VariantRubric
from mini_dnn.grading.confined.process import SubmissionError
from mini_dnn.grading.grades import FAILED, PASSED, SKIPPED
from mini_dnn.grading.measure import Method
from mini_dnn.grading.network import Examination
from mini_dnn.grading.outcome import Cheat, Outcome, described, partly
from mini_dnn.grading.subject import Subject
from mini_dnn.ops import Arrays
from mini_dnn.ops.hints import hint
from mini_dnn.running.verify import verify

HINT_ELEMENTS = 1 << 20  # of the outputs; for larger ones, the search for a likely mistake takes too long
NOT_TIMED = "not measured: the emulator cannot measure GPU time, and CPU time does not predict it"
HIDDEN_MESSAGE = "a hidden test failed"
FOLDER = "FOLDER"  # the name in the rubric may be that of another variant in the student's checkout
REPRODUCE = f"reproduce it, with the folder of your variant in place of {FOLDER}"
TRIALS = 3  # with the shown inputs, before a failure on other inputs counts as cheating
UNSTEADY = (
    "right in one run and wrong in another: this may be a race or uninitialised memory; run.py check "
    "finds both"
)


@dataclass(frozen=True)
class Ground:
    """What the checks of all submissions share."""

    rubric: Rubric
    examination: Examination | None  # the network, if the rubric asks for the accuracy
    reference_ms: Callable[[], float] | None = None  # returns the sum of the reference's op times on this GPU


class Judge:
    """The checks of one variant. `credit.judge` runs them in order until one makes the rest pointless."""

    def __init__(self, ground: Ground, asked: VariantRubric, subject: Subject, has_clock: bool) -> None:
        self._ground, self._rubric, self._asked = ground, ground.rubric, asked
        self._subject, self._has_clock = subject, has_clock
        self._operation = ground.rubric.operation
        self.op_ms: float | None = None

    def compiles(self) -> Outcome:
        """Compute the plans and compile the kernels of the shown problems."""
        head, staff = self._subject.head, f"claims {self._subject.head.precision}"
        if head.op != self._operation.name:
            return Outcome(FAILED, f"it computes {head.op}, but {self._operation.name} is required")
        if head.host:
            asked = "a kernel is required: plan= in variant.py, and kernel.cu"
            if not self._asked.host:
                return Outcome(FAILED, f"it is a NumPy function on the host, but {asked}")
            return Outcome(PASSED, staff=staff)
        for problem in self._rubric.correct.problems:
            if self._refusal(problem):
                continue  # the check 'correct' reports it
            with _noted(f"{problem}"):
                planned = self._subject.planned(problem)
            self._subject.compile(planned)
        return Outcome(PASSED, staff=staff)

    def correct(self) -> Outcome:
        """Compare every element at the shown problems, for the shown inputs and for other seeds.

        Check the precision.
        """
        shown = self._rubric.correct
        wrongs = {}
        for problem in shown.problems:
            if wrong := self._wrong_as_shown(problem):
                wrongs[problem] = wrong
                if not shown.per_shape:
                    return Outcome(FAILED, wrong)
        right = [problem for problem in shown.problems if problem not in wrongs]
        seed = secrets.randbits(64)  # nobody can know these inputs in advance
        fresh = np.random.default_rng(seed)
        for problem in right:
            with _noted(f"{problem}, other inputs"):
                wrong = self._wrong(problem, self._operation.draw(problem, fresh))
            if wrong:
                return self._unlike_shown(problem, fresh, wrong)
        precision = self._asked.precision
        for problem in right:
            probe = self._operation.probe(problem, precision, fresh)
            with _noted(f"{problem}, inputs made to show the precision"):
                wrong = self._wrong(*probe) if probe else ""
            if wrong:
                what = f"wrong or less precise than {precision}, the lowest precision that is allowed"
                return Outcome(FAILED, f"the result is {what}, for inputs made to expose this", wrong)
        if wrongs:
            return partly("\n".join(wrongs.values()), len(right), len(shown.problems))
        return Outcome(PASSED, staff=f"also with new inputs of seed {seed}")

    def _wrong_as_shown(self, problem: Any) -> str:
        """Describe what is wrong at a problem with the shown inputs, or return an empty string."""
        if refusal := self._refusal(problem):
            return f"{problem}: this shape is required, but the variant refuses it: {refusal}"
        if found := self._first_wrong(problem, self._rubric.correct.seeds):
            seed, wrong = found
            again = f"run.py run {FOLDER} --shapes {problem.text} --seed {seed} --check"
            return f"{problem}, inputs of seed {seed}:\n{wrong}\n{REPRODUCE}: {again}"
        return ""

    def _refusal(self, problem: Any) -> str:
        """Return why the variant refuses a problem, or an empty string if it accepts the problem."""
        with _noted(f"{problem}"):
            return self._subject.limit_for(problem)

    def _unlike_shown(self, problem: Any, fresh: np.random.Generator, wrong: str) -> Outcome:
        """Judge results that are right for the shown inputs and wrong for others, always or sometimes."""
        for _ in range(TRIALS):
            if found := self._first_wrong(problem, self._rubric.correct.seeds):
                seed, shown = found
                return Outcome(FAILED, f"{problem}, inputs of seed {seed}: {UNSTEADY}\n{shown}")
            with _noted(f"{problem}, other inputs"):
                other = self._wrong(problem, self._operation.draw(problem, fresh))
            if not other:
                return Outcome(FAILED, f"{problem}: {UNSTEADY}", wrong)
        raise Cheat(f"{problem}: right for the published inputs, wrong for other inputs of the same shape")

    def hidden(self) -> Outcome:
        """Check the results at problems that students do not see."""
        asked = self._rubric.hidden
        assert asked is not None, "the rubric was checked"
        wrongs = []
        for problem in asked.problems:
            if wrong := self._wrong_hidden(problem):
                if not asked.per_shape:
                    return Outcome(FAILED, HIDDEN_MESSAGE, wrong)
                wrongs.append(wrong)
        if wrongs:
            count = len(asked.problems)
            outcome = partly("\n".join(wrongs), count - len(wrongs), count)
            return replace(outcome, message=HIDDEN_MESSAGE, staff=outcome.message)
        return Outcome(PASSED)

    def _wrong_hidden(self, problem: Any) -> str:
        """Describe for staff what is wrong at a hidden problem, or return an empty string."""
        assert self._rubric.hidden is not None, "the rubric was checked"
        if refusal := self._refusal(problem):
            return f"{problem}: refused: {refusal}"
        if found := self._first_wrong(problem, self._rubric.hidden.seeds):
            seed, wrong = found
            return f"{problem}, seed {seed}: {wrong}"
        return ""

    def _first_wrong(self, problem: Any, seeds: Iterable[int]) -> tuple[int, str] | None:
        """Return the first seed whose inputs give a wrong result, and a description of the error."""
        for seed in seeds:
            with _noted(f"{problem}, inputs of seed {seed}"):
                wrong = self._wrong(problem, self._operation.inputs(problem, seed))
            if wrong:
                return seed, wrong
        return None

    def accuracy(self) -> Outcome:
        """Compare the network's accuracy with NumPy's."""
        examination = self._ground.examination
        assert examination is not None, "it is made where the rubric asks for it"
        found = examination.accuracy(self._subject.solve)
        off = abs(found - examination.expected) > examination.tolerance
        message = (
            f"{found:.4f} at batch {examination.batch} of {examination.data}, expected "
            f"{examination.expected:.4f}"
        )
        return Outcome(FAILED if off else PASSED, message, examination.note)

    def checked(self) -> Outcome:
        """Run the emulator's checked mode."""
        asked = self._rubric.checked
        assert asked is not None, "the rubric was checked"
        if self._subject.head.host:
            return Outcome(SKIPPED, "NumPy has no kernels to check")
        if self._subject.head.needs_gpu:
            return Outcome(SKIPPED, f"the emulator cannot run it: {self._subject.head.needs_gpu}")
        found = self._finding(asked)
        return Outcome(FAILED, found) if found else Outcome(PASSED)

    def checked_hidden(self) -> Outcome:
        """Run the emulator's checked mode at problems that students do not see."""
        asked = self._rubric.hidden_checked
        assert asked is not None, "credit.judge looks"
        if self._subject.head.host or self._subject.head.needs_gpu:
            return Outcome(SKIPPED, "it has no kernels that checked mode runs")
        found = self._finding(asked)
        return Outcome(FAILED, HIDDEN_MESSAGE, found) if found else Outcome(PASSED)

    def _finding(self, asked: Trials) -> str:
        """Describe the first finding of checked mode, or return an empty string if there is none."""
        for seed in asked.seeds:
            findings = self._subject.verdict(asked.problems, seed)["findings"]
            if findings:
                shapes = " ".join(problem.text for problem in asked.problems)
                again = f"run.py check {FOLDER} --shapes {shapes} --seed {seed}"
                return f"{described(findings[0], len(findings))}\n{REPRODUCE}: {again}"
        return ""

    def performance(self) -> Outcome:
        """Sum the op times of the rubric's problems."""
        asked = self._rubric.performance
        assert asked is not None, "the rubric was checked"
        if not self._has_clock:
            return Outcome(SKIPPED, NOT_TIMED)
        if self._subject.head.host:
            return Outcome(SKIPPED, "not measured: NumPy runs on the host")
        op_ms, staff = op_time(self._subject, asked, self._asked.precision)
        self.op_ms = op_ms
        reference = self._ground.reference_ms() if asked.reference and self._ground.reference_ms else None
        fraction = asked.fraction(op_ms, reference)
        scale = f", {op_ms / reference:.3f} of {asked.reference}'s {reference:.3f} ms" if reference else ""
        unit = f"times that of {asked.reference}" if reference else "ms"
        batch = f" at batch {asked.batch}" if asked.batch else ""
        message = f"{op_ms:.3f} ms{batch}{scale}; {asked.full:g} {unit} earns all points, {asked.none:g} none"
        return Outcome(PASSED if fraction > 0 else FAILED, message, staff, fraction)

    def _wrong(self, problem: Any, arrays: Arrays) -> str:
        """Describe what is wrong with the variant's outputs, or return an empty string."""
        outputs, precision = self._subject.solve(problem, arrays), self._asked.precision
        result = verify(self._operation, problem, arrays, outputs, precision)
        if result.ok:
            return ""
        known = problem.arrays
        unwritten = sum(int(np.isnan(known[name].without_gap(y)).sum()) for name, y in outputs.items())
        notes = f"; {unwritten} are NaN: no thread wrote them, or they depend on such an element" * (
            unwritten > 0
        )
        small = sum(array.size for array in outputs.values()) < HINT_ELEMENTS
        guess = hint(self._operation, problem, arrays, outputs, precision) if small and not unwritten else ""
        array = f"{result.array}: " if len(outputs) > 1 else ""
        return f"{array}{result}{notes}" + (f"\nhint: {guess}" if guess else "")


def op_time(subject: Subject, asked: Performance, precision: str) -> tuple[float, str]:
    """Return the sum of the op times in milliseconds, and the record for staff.

    Raises
    ------
    Cheat
        The measured time cannot count.
    """
    total, lines = 0.0, []
    for name, problem in asked.problems.items():
        parts = subject.measure(problem, Method(precision, asked.warm_up, asked.repeats))
        for part in parts:
            if part.refused:
                raise Cheat(f"{name}: {part.refused}")
        op_ms = sum(part.op_ms for part in parts)
        samples = ", ".join(f"{ms:.4f}" for ms in parts[0].samples_ms)
        floor = sum(part.floor_ms for part in parts)
        lines.append(
            f"{name}: {op_ms:.4f} ms in {len(parts)} parts, floor {floor:.4f}; {samples}; {parts[0].state}"
        )
        total += op_ms
    return total, "\n".join(lines)


@contextmanager
def _noted(what: str) -> Iterator[None]:
    """Add what was tried as a note to errors that are raised inside the block."""
    try:
        yield
    except (SubmissionError, VariantError, DeviceError) as error:
        error.add_note(what)
        raise
