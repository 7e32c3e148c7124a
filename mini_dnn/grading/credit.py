"""Run the checks of a variant one after the other, and compute what each earns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from mini_dnn.errors import DeviceError, VariantError
from mini_dnn.grading.asked import VariantRubric
from mini_dnn.grading.checks import HIDDEN_MESSAGE, Ground, Judge
from mini_dnn.grading.confined.process import FORBIDDEN, Ended, SubmissionError
from mini_dnn.grading.grades import FAILED, PASSED, SKIPPED, Check
from mini_dnn.grading.outcome import Cheat, Outcome
from mini_dnn.grading.subject import Subject

# The checks in this order. Hidden ones come last: a process of the submission that has seen hidden data does
# not answer for a check whose message the author reads.
HIDDEN = {
    "hidden": "hidden",
    "checked, hidden": "checked",
}  # and the points that make each check part of the grade
STEPS = ("compiles", "correct", "accuracy", "checked", "performance", *HIDDEN)
# For each failing check: the checks that then earn nothing.
LOST = {"hidden": ("performance",), "checked, hidden": ("checked",)}


@dataclass
class Findings:
    """All checks of one variant."""

    checks: list[Check] = field(default_factory=list)
    cheat: str = ""
    op_ms: float | None = None


def judge(
    ground: Ground,
    asked: VariantRubric,
    subject: Subject,
    has_clock: bool,
    alone: Callable[[], None] = lambda: None,
) -> Findings:
    """Run all checks of a variant. ``alone`` is called before the hidden ones."""
    variant = Judge(ground, asked, subject, has_clock)
    steps: dict[str, Callable[[], Outcome]] = {
        name: getattr(variant, name.replace(", ", "_"))
        for name in STEPS
        if name in ("compiles", "correct") or asked.points.get(HIDDEN.get(name, name))
    }
    if ground.rubric.hidden_checked is None:
        steps.pop("checked, hidden", None)
    findings, stop, is_alone = Findings(), "", False
    if subject.head.needs_gpu and not has_clock:
        stop = f"not run, because the emulator cannot run it: {subject.head.needs_gpu}"
    for name, step in steps.items():
        if name in HIDDEN and not is_alone and not stop:
            subject.close()  # ends processes that others may have passed information to
            alone()
            is_alone = True
        since = time.perf_counter()
        outcome = Outcome(SKIPPED, stop) if stop else _made(name, step, findings)
        findings.checks.append(_check(asked, name, outcome, time.perf_counter() - since))
        if outcome.ends or (outcome.status == FAILED and name in HIDDEN):
            lost = STEPS if outcome.ends else LOST[name]  # the speed of wrong results does not count
            findings.checks[:] = [_without_credit(check, name, lost) for check in findings.checks]
            variant.op_ms = None if outcome.ends or "performance" in lost else variant.op_ms
        if outcome.ends or (outcome.status == FAILED and name in ("compiles", "correct")):
            stop = f"not run, because '{name}' failed"
    findings.op_ms = variant.op_ms
    return findings


def _made(name: str, step: Callable[[], Outcome], findings: Findings) -> Outcome:
    """Run a check. Errors of the submission's processes make it fail."""
    try:
        return step()
    except (SubmissionError, VariantError, DeviceError) as error:
        text = ":\n".join([*getattr(error, "__notes__", []), str(error)])
        ends = isinstance(error, Cheat | Ended) or FORBIDDEN in text
        staff = ""
        if name in HIDDEN:  # a message from there may reveal hidden data
            text, staff = HIDDEN_MESSAGE, text
        if isinstance(error, Cheat) or FORBIDDEN in str(error):
            findings.cheat = text.partition(FORBIDDEN)[2] or text
        return Outcome(FAILED, text.replace(FORBIDDEN, ""), staff.replace(FORBIDDEN, ""), ends=ends)


def _check(asked: VariantRubric, name: str, outcome: Outcome, seconds: float) -> Check:
    worth = asked.points.get(name, 0.0)
    return Check(
        name=f"{asked.name}: {name}",
        status=outcome.status,
        points=worth * outcome.fraction if outcome.status == PASSED or outcome.partly else 0.0,
        max_points=worth if asked.required else 0.0,
        message=outcome.message,
        staff=outcome.staff,
        hidden=name in HIDDEN,
        seconds=seconds,
        ends=outcome.ends,
    )


def _without_credit(check: Check, name: str, lost: Sequence[str]) -> Check:
    if not check.points or check.name.rpartition(": ")[2] not in lost:
        return check
    return replace(check, points=0.0, message=f"{check.message} (no credit, because '{name}' failed)".strip())
