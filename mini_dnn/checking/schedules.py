"""The orders in which a check runs blocks and threads, and the combination of their findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mini_dnn.checking.causes import MET_LATER, Mistake, mistakes
from mini_dnn.device.finding import Finding

SCHEDULES = ("forward", "reverse", "random")  # the numbers of Schedule in runtime/checked/shadow.h


def all_schedules(check: Callable[[str], Finding | None], schedules: Sequence[str]) -> list[Finding]:
    """Return what is found in any order, each mistake once, causes first.

    Parameters
    ----------
    check
        Runs everything in the order with this name, up to the first finding.
    """
    found: list[tuple[str, Finding]] = []
    for schedule in schedules:
        finding = check(schedule)
        if finding:
            found.append((schedule, finding))
            if finding.kind == "endless":
                break  # the other orders would take as long
    return [_noted(one, schedules[0]) for one in mistakes(found)]


def with_cause(cause: Finding, found: Sequence[Finding]) -> list[Finding]:
    """Attach the findings of one problem to the cause that brings them about."""
    return [one.told() for one in mistakes([("", cause), *(("", finding) for finding in found)])]


def _noted(one: Mistake, first: str) -> Finding:
    if first in one.met:
        return one.told()
    note = f"{MET_LATER}{first} order: found when blocks and threads run in {one.met[0]} order"
    return replace(one.told(), notes=(*one.finding.notes, note))
