"""Groups findings by mistake: the cause is reported, and other symptoms are listed with it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from mini_dnn.device.cures import CURES
from mini_dnn.device.finding import Finding, Place
from mini_dnn.ops.hints import ACCURACY, INFINITE

# The word for a mistake that shows in several ways: the first of these kinds.
CAUSES = (
    "compile",
    "launch",
    "endless",
    "warp-mask",
    "divergence",
    "deadlock",
    "out-of-bounds",
    "misaligned",
    "undefined",
    "async",
    "cluster",
    "fault",
    "race",
    "uninitialised",
    "unwritten",
    "wrong",
)
OF_OUTPUTS = ("wrong", "unwritten")
OF_ORDER = ("race", "uninitialised")  # symptoms of a missing barrier, depending on the order
OF_MEETINGS = ("divergence", "warp-mask", "deadlock")
OF_INDICES = ("out-of-bounds", "misaligned")  # symptoms of a wrong index; a race of two writes is one, too
OF_TWO_LINES = ("race", "async", "cluster")
NUMBER = re.compile(r"\b\d[\d,]*")
MET_LATER = "not found in "  # the beginning of the note that `all_schedules` adds


@dataclass
class Mistake:
    """One cause, and the problems or orders in which it was found."""

    finding: Finding
    met: list[Any]  # the problems or orders; that of `finding` first
    effects: list[Finding] = field(default_factory=list)
    rounds: bool = True  # wrong results so far may be those of a lower precision

    def told(self) -> Finding:
        """The cause, together with its effects."""
        effects = tuple(self._rounded(effect) for effect in self.effects)
        return replace(self._rounded(self.finding), effects=effects)

    def _rounded(self, finding: Finding) -> Finding:
        """Remove the note that the result is rounded, if results of other problems are not."""
        return replace(
            finding,
            notes=tuple(note for note in finding.notes if self.rounds or not note.startswith(ACCURACY)),
        )

    def add(self, finding: Finding, place: Any) -> None:
        """Add a problem or order in which the mistake was also found."""
        if place not in self.met:
            self.met.append(place)
        for other in (finding, *finding.effects):
            if not any(same_mistake(other, known) for known in (self.finding, *self.effects)):
                self.effects.append(replace(other, effects=()))
        if finding.kind == "wrong":  # one problem may give more information than another
            self.rounds &= any(note.startswith(ACCURACY) or INFINITE in note for note in finding.notes)
            self.finding = _with_notes(self.finding, finding)
            self.effects = [_with_notes(effect, finding) for effect in self.effects]


def _with_notes(finding: Finding, other: Finding) -> Finding:
    """A wrong result with the notes of another one, except those that differ only in numbers."""
    if finding.kind != "wrong":
        return finding
    notes: dict[str, str] = {}
    for note in (*finding.notes, *other.notes):
        notes.setdefault(NUMBER.sub("#", note), note)
    return replace(finding, notes=tuple(notes.values()))


def mistakes(found: Iterable[tuple[Any, Finding]]) -> list[Mistake]:
    """Group findings, each with the problem or order in which it was found, by their causes."""
    found = list(found)
    kept: list[Mistake] = []
    for place, finding in sorted(found, key=lambda each: CAUSES.index(each[1].kind)):
        one = next((one for one in kept if _belongs(finding, place, one)), None)
        if one is None:
            one = Mistake(replace(finding, effects=()), [])
            kept.append(one)
        one.add(finding, place)
    places = list(dict.fromkeys(place for place, _ in found))
    for one in kept:  # the finding is described as it was found at the first of its places
        one.met[1:] = sorted(one.met[1:], key=places.index)
    return kept


def _belongs(finding: Finding, place: Any, one: Mistake) -> bool:
    known = (one.finding, *one.effects)
    return any(same_mistake(finding, other) for other in known) or _comes_of(
        finding, one.finding, place in one.met
    )


def same_mistake(a: Finding, b: Finding) -> bool:
    """Whether two findings have one mistake: the same kind and line; for a race, the line of either access.

    Wrong outputs and launches have no line in a kernel. All wrong results of a kernel count as one mistake,
    and so do launches of a kernel with the same cure.
    """
    if a.kind != b.kind or a.kernel != b.kernel:
        return False
    if a.kind in OF_OUTPUTS:
        return True
    if a.kind == "launch":
        return a.cure == b.cure
    mine, others = _places(a), _places(b)
    return bool(mine & others) if mine and others else a.what == b.what


def each_once(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, each mistake once."""
    kept: list[Finding] = []
    for finding in findings:
        if not any(same_mistake(finding, other) for other in kept):
            kept.append(finding)
    return kept


def _comes_of(effect: Finding, cause: Finding, together: bool) -> bool:
    """Whether the mistake behind ``cause`` may also cause ``effect``.

    Parameters
    ----------
    together
        Whether they were found at the same problem.
    """
    if effect.kind in OF_OUTPUTS:
        return _spoils_outputs(cause, effect, together)
    if effect.kernel != cause.kernel:
        return False
    if _places(effect) & _places(cause) and _of_one_array(effect, cause):
        return not (cause.kind in OF_INDICES and _is_of_two_lines(effect) and not cause.memory)
    if cause.kind in OF_MEETINGS:
        returns = effect.kind == "cluster" and cause.cure == CURES["cluster barrier"]  # too early
        return returns or (effect.kind in OF_ORDER and _overlap(effect, cause))
    if {effect.kind, cause.kind} <= set(OF_ORDER):
        return effect.memory == cause.memory == "shared" and _overlap(effect, cause)
    if cause.kind in OF_INDICES and effect.kind == "race":
        both_write = bool(effect.own and effect.other and effect.own.write and effect.other.write)
        return both_write and effect.memory == cause.memory == "global"
    return False


def _spoils_outputs(cause: Finding, effect: Finding, together: bool) -> bool:
    """Most causes also change results at other problems, unless these results match another mistake."""
    far = (*OF_INDICES, *OF_MEETINGS, "launch", "race", "uninitialised", "unwritten")
    elsewhere = cause.memory != "shared" and cause.kind in far
    guessed = any(not note.startswith(MET_LATER) for note in effect.notes)
    return together or (elsewhere and not (effect.kind == "wrong" and guessed))


def _of_one_array(a: Finding, b: Finding) -> bool:
    """Whether they may be about the same array. The array of local variables and operands is unknown."""
    names = {finding.array.partition("[")[0] for finding in (a, b) if finding.memory}
    return len(names) < 2 or a.memory == b.memory == "shared"


def _is_of_two_lines(finding: Finding) -> bool:
    """Whether a barrier is missing between two lines, which a wrong index cannot cause."""
    return finding.kind == "race" and len(_places(finding)) > 1


def _overlap(a: Finding, b: Finding) -> bool:
    """Whether one place is between the two accesses of both, so that a barrier there would remove both."""
    mine, others = _places(a), _places(b)
    if not mine or not others or len({place.file for place in mine | others}) > 1:
        return False
    first, last = (sorted(place.line for place in places) for places in (mine, others))
    return first[0] <= last[-1] and last[0] <= first[-1]


def _places(finding: Finding) -> set[Place]:
    parties = (finding.own, finding.other) if finding.kind in OF_TWO_LINES else (finding.own,)
    return {party.place for party in parties if party and party.place}


def effects_in_words(finding: Finding) -> str:
    """``"race (kernel.cu:15), wrong result"``, or nothing."""
    words = []
    for effect in finding.effects:
        place = f" ({effect.place.file}:{effect.place.line})" if effect.place else ""
        words.append(f"{effect.kind}{place}" if effect.kind != "wrong" else "wrong result")
    return ", ".join(words)
