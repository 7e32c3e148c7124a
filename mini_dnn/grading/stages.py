"""Grading in two stages: on processors everything but times; then, on a GPU, what has passed.

The second stage makes the first one's checks again, because a kernel may be right in the emulator and wrong
on a GPU. Checked mode runs in the emulator either way, so the first stage alone makes that check.
"""

from __future__ import annotations

from dataclasses import replace

from mini_dnn.grading.asked import Rubric, VariantRubric
from mini_dnn.grading.grades import FAILED, ISOLATION, PASSED, Check, Grade

WHOLE, CPU, GPU = "", "cpu", "gpu"
DECIDING = ("submitted", "compiles", "correct", "hidden")  # who fails one of them has no points for speed


def of_stage(rubric: Rubric, stage: str) -> Rubric:
    """What a stage asks for."""
    return replace(rubric, variants=tuple(map(_timed, rubric.variants))) if stage == GPU else rubric


def _timed(asked: VariantRubric) -> VariantRubric:
    return replace(asked, points={name: worth for name, worth in asked.points.items() if name != "checked"})


def passed(grade: Grade, rubric: Rubric) -> list[str]:
    """Names of the variants that the second stage is to time."""
    if grade.refused:
        return []
    timed = [asked.name for asked in rubric.variants if asked.points.get("performance")]
    return [name for name in timed if _may_be_timed(_of_variant(grade, name))]


def _may_be_timed(checks: dict[str, Check]) -> bool:
    """Nothing has failed that a GPU would have to show again; the emulator may have been unable to run it."""
    ended = any(_lost(check) for check in checks.values())
    failed = any(name in checks and checks[name].status == FAILED for name in DECIDING)
    return "compiles" in checks and not ended and not failed


def _lost(check: Check) -> bool:
    """Whether a check passed and earned nothing all the same, as something ended the variant."""
    return check.status == PASSED and check.max_points > 0 and not check.points


def merged(first: Grade, second: Grade | None) -> Grade:
    """One grade of two stages: what a GPU has shown counts, and the first stage's checks fill the gaps."""
    if second is None:
        return first
    checks = {check.name: check for check in first.checks}
    for check in second.checks:
        checks[check.name] = check
    for name in {check.name.rpartition(": ")[0] for check in second.checks if check.name != ISOLATION}:
        there = _of_variant(second, name)
        wrong = any(there[step].status == FAILED for step in DECIDING[:3] if step in there)
        known = checks.get(f"{name}: checked")
        if known and (wrong or any(map(_lost, there.values()))):
            told = f"{known.message} (no credit, as it failed on the GPU)".strip()
            checks[known.name] = replace(known, points=0.0, message=told)
    return replace(
        second,
        checks=tuple(checks.values()),
        refused="; ".join(filter(None, (first.refused, second.refused))),
        started=first.started,
        seconds=first.seconds + second.seconds,
    )


def _of_variant(grade: Grade, name: str) -> dict[str, Check]:
    """The checks of a variant, by what they look at."""
    found = (check for check in grade.checks if check.name.rpartition(": ")[0] == name)
    return {check.name.rpartition(": ")[2]: check for check in found}
