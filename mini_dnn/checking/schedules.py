"""The orders in which a check runs blocks and threads, and what it makes of their findings together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from mini_dnn.device.finding import Finding, Place

SCHEDULES = ("forward", "reverse", "random")  # the numbers of Schedule in runtime/checked/shadow.h
# What a mistake is called that shows in several ways: by the first of these.
CAUSES = (
    "compile",
    "launch",
    "endless",
    "warp-mask",
    "divergence",
    "deadlock",
    "out-of-bounds",
    "misaligned",
    "async",
    "cluster",
    "fault",
    "race",
    "uninitialised",
    "unwritten",
    "wrong",
)

OF_OUTPUTS = ("wrong", "unwritten")

Found = list[tuple[str, Finding]]  # with the schedule


def all_schedules(check: Callable[[str], Finding | None], schedules: Sequence[str]) -> list[Finding]:
    """What is found in any order, each mistake once.

    Parameters
    ----------
    check
        Runs everything in the order of that name, up to the first finding.
    """
    found: Found = []
    for schedule in schedules:
        finding = check(schedule)
        if finding:
            found.append((schedule, finding))
            if finding.kind == "endless":
                break  # the other orders would take as long
    return _distinct(found, schedules)


def same_mistake(a: Finding, b: Finding) -> bool:
    """Whether two findings tell of one mistake: of one kind, on one line, of a race on either side.

    Outputs are wrong or unwritten on no line: then they tell of one mistake where the notes say the same, but
    for numbers.
    """
    return a.kind == b.kind and _same_place(a, b)


def each_once(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, each mistake once."""
    kept: list[Finding] = []
    for finding in findings:
        if not any(same_mistake(finding, other) for other in kept):
            kept.append(finding)
    return kept


def _same_cause(a: Finding, b: Finding) -> bool:
    """Whether one mistake may show as the one in one order, and as the other in the next.

    It does so on one line, and at one array, unless one of them is about no array.
    """
    arrays = {name for finding in (a, b) if (name := finding.array.partition("[")[0])}
    return same_mistake(a, b) or (_same_place(a, b) and len(arrays) < 2)


def _same_place(a: Finding, b: Finding) -> bool:
    mine, others = _places(a), _places(b)
    if mine and others:
        return a.kernel == b.kernel and bool(mine & others)
    if a.kind in OF_OUTPUTS and not (mine or others):
        return (a.kind, _without_numbers(a.notes)) == (b.kind, _without_numbers(b.notes))
    return (a.kind, a.kernel, a.what) == (b.kind, b.kernel, b.what)


def _without_numbers(notes: Iterable[str]) -> list[str]:
    return [re.sub(r"[\d,]+", "0", note) for note in notes]


def _places(finding: Finding) -> set[Place]:
    parties = (finding.own, finding.other) if finding.kind == "race" else (finding.own,)
    return {party.place for party in parties if party and party.place}


def _distinct(found: Found, schedules: Sequence[str]) -> list[Finding]:
    causes = [(s, f) for s, f in found if f.kind != "wrong"] or found  # a wrong result is their effect
    kept: list[Finding] = []
    for schedule, finding in sorted(causes, key=lambda each: CAUSES.index(each[1].kind)):
        if any(_same_cause(finding, other) for other in kept):
            continue
        if not any(_same_cause(finding, other) for s, other in found if s == schedules[0]):
            note = f"hidden in {schedules[0]} order: met when blocks and threads run in {schedule} order"
            finding = replace(finding, notes=(*finding.notes, note))
        kept.append(finding)
    return kept
