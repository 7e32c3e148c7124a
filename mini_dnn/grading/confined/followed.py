"""The facts found by following a function of a compiled kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mini_dnn.grading.confined.disassembly import Function, Instruction
from mini_dnn.grading.confined.image import Image
from mini_dnn.grading.confined.values import Unknown, Value


@dataclass(frozen=True)
class Unseen:
    """A memory access that no hook was told of."""

    function: str
    at: int
    text: str
    # A store to an address that was kept over a call; it may be in a returned structure
    is_kept: bool = False


@dataclass(frozen=True)
class Call:
    """A call of a function of the library, or a jump to one."""

    one: Instruction
    target: int
    place: Value  # the first argument
    top: Value  # the top of the stack


@dataclass
class Followed:
    """The facts about one function.

    Attributes
    ----------
    unseen
        Accesses that no hook was told of.
    returned
        Bytes, counted from the address in its first argument, that it accesses without a hook. g++ inserts
        none for a structure that a function returns in memory of its caller. `returned.py` checks the
        callers.
    calls
        Calls of functions that may do the same. Calls through a pointer are checked where they are made.
    saved, places
        Slots of saved registers, and of the place of its result: bytes from one of `ORIGINS`.
    above
        Bytes of its caller's part of the stack that it writes, for arguments that are not in registers.
    is_careless
        Whether it may fail to restore saved registers, or writes to an unknown part of its caller's stack.
    """

    unseen: list[Unseen] = field(default_factory=list)
    returned: int = 0
    calls: dict[int, Call] = field(default_factory=dict)  # by their addresses
    saved: set[tuple[Unknown, int]] = field(default_factory=set)
    places: set[tuple[Unknown, int]] = field(default_factory=set)
    above: int = 0
    is_careless: bool = False


def changes(
    followed: Mapping[int, Followed], functions: Mapping[int, Function], image: Image
) -> tuple[frozenset[int], dict[int, int]]:
    """Return careless functions, and the bytes of the caller that others write, directly or by a jump."""
    careless = image.careless | {at for at, one in followed.items() if one.is_careless}
    above = {at: one.above for at, one in followed.items()}
    leaves = [
        (at, image.called(one))
        for at, f in functions.items()
        for one in f.code
        if one.name.startswith("jmp") and image.called(one) & functions.keys() - {at}
    ]
    for _ in leaves:  # each may jump to the next
        careless |= {at for at, called in leaves if called & careless}
        for at, called in leaves:
            above[at] = max(above[at], *(above.get(other, 0) for other in called))
    return careless, {at: most for at, most in above.items() if most}
