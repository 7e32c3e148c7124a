"""Grading in two stages: everything but times on CPUs, and then the times of what passed on a GPU.

The second stage repeats the first one's checks, because a kernel may be right in the emulator and wrong on a
GPU. Checked mode always runs in the emulator, so only the first stage runs that check.
"""

from __future__ import annotations

from dataclasses import replace

from mini_dnn.grading.asked import Rubric, VariantRubric
from mini_dnn.grading.checks import NOT_TIMED
from mini_dnn.grading.grades import FAILED, ISOLATION, Check, Grade

WHOLE, CPU, GPU = "", "cpu", "gpu"
# A variant that fails one of these has no points for speed
DECIDING = ("submitted", "compiles", "correct", "hidden")
NOT_CHOSEN = "not measured on a GPU, because the variant did not pass the other checks"


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
    failed = any(name in checks and checks[name].status == FAILED for name in DECIDING)
    return "compiles" in checks and not failed and not _ended(checks)


def _ended(checks: dict[str, Check]) -> bool:
    """Whether something ended the variant, so that no check earns anything."""
    return any(check.ends for check in checks.values())


def merged(first: Grade, second: Grade | None) -> Grade:
    """Merge the grades of two stages. The GPU's results count, and the first stage fills the gaps."""
    timed = {_variant_of(check) for check in second.checks} if second else set()
    checks = {one.name: one if _variant_of(one) in timed else _untimed(one) for one in first.checks}
    if second is None:
        return replace(first, checks=tuple(checks.values()))
    for check in second.checks:
        checks[check.name] = check
    for name in {_variant_of(check) for check in second.checks if check.name != ISOLATION}:
        there = _of_variant(second, name)
        wrong = any(there[step].status == FAILED for step in DECIDING[:3] if step in there)
        known = checks.get(f"{name}: checked")
        if known and (wrong or _ended(there)):
            told = f"{known.message} (no credit, as it failed on the GPU)".strip()
            checks[known.name] = replace(known, points=0.0, message=told)
    return replace(
        second,
        checks=tuple(checks.values()),
        refused="; ".join(filter(None, (first.refused, second.refused))),
        started=first.started,
        seconds=first.seconds + second.seconds,
    )


def _untimed(check: Check) -> Check:
    """A check of a variant that was not timed, with the reason for this."""
    return replace(check, message=NOT_CHOSEN) if check.message == NOT_TIMED else check


def _variant_of(check: Check) -> str:
    """The name of the variant that a check is about, or an empty string."""
    return check.name.rpartition(": ")[0]


def _of_variant(grade: Grade, name: str) -> dict[str, Check]:
    """Return the checks of a variant, by what they check."""
    found = (check for check in grade.checks if _variant_of(check) == name)
    return {check.name.rpartition(": ")[2]: check for check in found}
