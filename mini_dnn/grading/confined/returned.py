"""Check that structures returned by functions are written where their callers have room for them.

A caller passes an address on its stack, and g++ inserts no hook before the stores to it. A caller that casts
the function to another type could pass any address, or too small a place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mini_dnn.grading.confined.accesses import FRAME, MOST_FRAME
from mini_dnn.grading.confined.followed import Call, Followed
from mini_dnn.grading.confined.image import PLACE, TOP, signed
from mini_dnn.grading.confined.values import WORD, Unknown


@dataclass(frozen=True)
class Misplaced:
    """A call of a function that returns a structure, with a place that may not have enough room."""

    function: int  # the function with the call
    call: Call


def misplaced(functions: Mapping[int, Followed], room: Mapping[int, int]) -> Misplaced | None:
    """Return the first call whose place may be too small, or None.

    Parameters
    ----------
    functions
        The functions by address.
    room
        The result of `needed_room` for these functions.
    """
    for at in sorted(functions):
        kept = kept_slots(functions[at], room[at])
        for call in functions[at].calls.values():
            needed = room.get(call.target, 0)
            if needed and not _fits(call, needed, kept):
                return Misplaced(at, call)
    return None


def kept_slots(function: Followed, room: int) -> set[tuple[Unknown, int]]:
    """Return the slots of a function's frame that nobody else may change."""
    return function.saved | (function.places if room else set())


def needed_room(functions: Mapping[int, Followed]) -> dict[int, int]:
    """Return how many bytes each function, including its callees, writes to its first argument's address."""
    room = {at: one.returned for at, one in functions.items()}
    passes = [
        (at, call)
        for at, one in functions.items()
        for call in one.calls.values()
        if call.place.terms == PLACE.terms
    ]
    changed = True
    while changed:
        changed = False
        for at, call in passes:
            needed = room.get(call.target, 0)
            whole = needed and call.place.constant + needed
            if room[at] < whole and call.place.constant < MOST_FRAME and room[at] <= MOST_FRAME:
                room[at], changed = whole, True
    return room


def _fits(call: Call, needed: int, kept: set[tuple[Unknown, int]]) -> bool:
    """Whether the place is in the caller's frame, or was passed on by its own caller."""
    place, top = call.place, call.top
    if place.terms == PLACE.terms:
        return place.constant + needed <= MOST_FRAME
    if not place.on_stack or place.terms != top.terms:
        return False
    end = signed(FRAME.constant) if top.terms == TOP.terms else 0
    start = signed(place.constant)
    if any(start - WORD < at < start + needed for origin, at in kept if origin is place.terms[0][0]):
        return False
    return signed(top.constant) <= start <= end - needed
