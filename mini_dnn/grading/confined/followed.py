"""What is found out about a function of a compiled kernel by following it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mini_dnn.grading.confined.disassembly import Function, Instruction
from mini_dnn.grading.confined.effects import Image
from mini_dnn.grading.confined.values import Unknown, Value


@dataclass(frozen=True)
class Unseen:
    """An access that no hook was told of."""

    function: str
    at: int
    text: str
    is_kept: bool = False  # a store at an address that was kept over a call, maybe of a returned structure


@dataclass(frozen=True)
class Call:
    """A call, or a jump, of a function of the library."""

    one: Instruction
    target: int
    place: Value  # the first argument
    top: Value  # of the stack


@dataclass
class Followed:
    """What was found out about a function.

    Attributes
    ----------
    unseen
        Accesses that no hook was told of.
    returned
        Bytes, from the place of its first argument on, that it uses without a hook: g++ has none for a
        structure that a function returns where its caller wants it. `returned.py` looks at the callers.
    calls
        Of functions that may do the same; those by a pointer are looked at as they are made.
    saved, places
        Slots of saved registers, and of the place of its result: bytes from one of `ORIGINS`.
    above
        Bytes of its caller's part of the stack that it writes: arguments that no register holds.
    is_careless
        Whether it may leave saved registers other than they were, or writes an unknown part of its caller's.
    """

    unseen: list[Unseen] = field(default_factory=list)
    returned: int = 0
    calls: dict[int, Call] = field(default_factory=dict)  # by their places
    saved: set[tuple[Unknown, int]] = field(default_factory=set)
    places: set[tuple[Unknown, int]] = field(default_factory=set)
    above: int = 0
    is_careless: bool = False


def changes(
    followed: Mapping[int, Followed], functions: Mapping[int, Function], image: Image
) -> tuple[frozenset[int], dict[int, int]]:
    """Functions that are careless, and what others write of their callers': they, or where they go on to."""
    careless = image.careless | {at for at, one in followed.items() if one.is_careless}
    above = {at: one.above for at, one in followed.items()}
    leaves = [
        (at, image.called(one))
        for at, f in functions.items()
        for one in f.code
        if one.name.startswith("jmp") and image.called(one) & functions.keys() - {at}
    ]
    for _ in leaves:  # each may go on to the next
        careless |= {at for at, called in leaves if called & careless}
        for at, called in leaves:
            above[at] = max(above[at], *(above.get(other, 0) for other in called))
    return careless, {at: most for at, most in above.items() if most}
