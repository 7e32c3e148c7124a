"""Grading in two stages: everything but times on CPUs, and then the times of what passed on a GPU.

The second stage repeats the first one's checks, because a kernel may be right in the emulator and wrong on a
GPU. Checked mode always runs in the emulator, so only the first stage runs that check.
"""

from __future__ import annotations

from dataclasses import replace

from mini_dnn.grading.asked import Rubric, VariantRubric
from mini_dnn.grading.grades import FAILED, ISOLATION, PASSED, Check, Grade

WHOLE, CPU, GPU = "", "cpu", "gpu"
# A variant that fails one of these has no points for speed
DECIDING = ("submitted", "compiles", "correct", "hidden")


def of_stage(rubric: Rubric, stage: str) -> Rubric:
    """Return the rubric of one stage."""
    return replace(rubric, variants=tuple(map(_timed, rubric.variants))) if stage == GPU else rubric


def _timed(asked: VariantRubric) -> VariantRubric:
    return replace(asked, points={name: worth for name, worth in asked.points.items() if name != "checked"})


def passed(grade: Grade, rubric: Rubric) -> list[str]:
    """Return the names of the variants that the second stage should time."""
    if grade.refused:
        return []
    timed = [asked.name for asked in rubric.variants if asked.points.get("performance")]
    return [name for name in timed if _may_be_timed(_of_variant(grade, name))]


def _may_be_timed(checks: dict[str, Check]) -> bool:
    """Whether no deciding check has failed. The emulator may have been unable to run the variant."""
    ended = any(_lost(check) for check in checks.values())
    failed = any(name in checks and checks[name].status == FAILED for name in DECIDING)
    return "compiles" in checks and not ended and not failed


def _lost(check: Check) -> bool:
    """Whether a check passed but earned nothing because something ended the variant."""
    return check.status == PASSED and check.max_points > 0 and not check.points


def merged(first: Grade, second: Grade | None) -> Grade:
    """Merge the grades of two stages. The GPU's results count, and the first stage fills the gaps."""
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
    """Return the checks of a variant, by what they check."""
    found = (check for check in grade.checks if check.name.rpartition(": ")[0] == name)
    return {check.name.rpartition(": ")[2]: check for check in found}
