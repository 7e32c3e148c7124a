"""The known state at one place in a function: registers, the stack, and what hooks were told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from mini_dnn.grading.confined.disassembly import Memory
from mini_dnn.grading.confined.values import (
    MASK,
    STACK,
    WORD,
    Unknown,
    Value,
    low,
    number,
    unknown,
    zero_extended,
)

MOST_JOINTS = 2  # the most joins of paths that a value keeps apart
LETTERS = ("a", "b", "c", "d")
# Names of parts of registers: the whole register, and the size in bytes
NAMES: dict[str, tuple[str, int]] = {}
for letter in LETTERS:
    for part, size in (("r{}x", 8), ("e{}x", 4), ("{}x", 2), ("{}l", 1), ("{}h", 1)):
        NAMES[part.format(letter)] = f"r{letter}x", size
for letter in ("si", "di", "bp", "sp"):
    for part, size in (("r{}", 8), ("e{}", 4), ("{}", 2), ("{}l", 1)):
        NAMES[part.format(letter)] = f"r{letter}", size
for index in range(8, 16):
    for part, size in (("r{}", 8), ("r{}d", 4), ("r{}w", 2), ("r{}b", 1)):
        NAMES[part.format(index)] = f"r{index}", size
REGISTERS = tuple(sorted({whole for whole, _ in NAMES.values()}))


def _written(half: Value, halves: dict[Value, Value]) -> Value:
    whole = zero_extended(half)
    halves[whole] = half
    return whole


@dataclass
class State:
    """The known state at one place in a function."""

    registers: dict[str, Value]
    slots: dict[tuple[Unknown, int], tuple[Value, int]] = field(
        default_factory=dict
    )  # value and size in bytes, by place on the stack
    # Bytes, by place and whether it is a write
    told: dict[tuple[Value, bool], int] = field(default_factory=dict)
    fresh: int = 0  # the number of called hooks whose access is not yet known
    halves: dict[Value, Value] = field(default_factory=dict)  # the halves that registers were set to

    def copy(self) -> State:
        """Return a copy that can be changed."""
        return State(dict(self.registers), dict(self.slots), dict(self.told), self.fresh, self.halves)

    def address(self, place: Memory) -> Value:
        """Return the address of an operand."""
        value = number(place.offset)
        for name, factor in ((place.base, 1), (place.index, place.scale)):
            if name:
                value = value.plus(self.read(name), factor)
        return value.plus(unknown("segment", place.segment)) if place.segment in ("fs", "gs") else value

    def read(self, name: str) -> Value:
        """Return the value of a register or of a part of it."""
        if name not in NAMES:
            return unknown("register", name)
        whole, size = NAMES[name]
        value = self.registers[whole]
        return value if size == WORD else self.half(value) if size == 4 else unknown("part", name, value)

    def half(self, value: Value) -> Value:
        """Return the lower half of a register's value."""
        return self.halves.get(value) or low(value)

    def write(self, name: str, value: Value) -> None:
        """Set a register or a part of it."""
        if name not in NAMES:
            return
        whole, size = NAMES[name]
        if size < 4:
            value = unknown("mixed", name, self.registers[whole], value)
        self.registers[whole] = _written(value, self.halves) if size == 4 else value

    def load(self, place: Value, size: int, at: int) -> Value:
        """Return the value in a place on the stack."""
        where = stack_offset(place)
        if where is None:
            return unknown("loaded", at)
        if where not in self.slots:
            self.slots[where] = unknown("slot", at), size
        value, stored = self.slots[where]
        return value if stored == size else self.half(value) if size == 4 else unknown("loaded", at)

    def store(self, place: Value, value: Value, size: int) -> None:
        """Set a place on the stack."""
        where = stack_offset(place)
        if where is None:
            return
        origin, first = where
        for at in range(first - WORD + 1, first + max(size, 1)):
            if (origin, at) in self.slots and at + self.slots[origin, at][1] > first:
                del self.slots[origin, at]
        self.slots[where] = value, size

    def was_told(self, place: Value, writes: bool, count: int = 1) -> bool:
        """Whether a hook was told of this range of bytes, or of a larger range that contains it."""
        return any(
            told.terms == place.terms
            and ((place.constant - told.constant) & MASK) + count <= size
            and of_write == writes
            for (told, of_write), size in self.told.items()
        )


@cache
def stack_offset(place: Value) -> tuple[Unknown, int] | None:
    """Return the origin and offset in bytes of a place on the stack.

    The result is None for other places, and for places with an index.
    """
    inner = place.terms
    if len(inner) != 1 or inner[0][0].kind != STACK or inner[0][1] != 1:
        return None
    return inner[0][0], place.constant - (1 << 64) if place.constant >> 63 else place.constant


def merged(old: State, new: State, block: int) -> State:
    """Return the known state where two paths join: ``old`` itself if it already covers both."""
    pairs: dict[Any, tuple[Value, Value]] = {
        name: (kept, other)
        for name, kept in old.registers.items()
        if (other := new.registers[name]) is not kept
    }
    slots = {}
    for at, (value, size) in old.slots.items():
        stored = new.slots.get(at)
        if stored is not None and stored[1] == size:
            slots[at] = value, size
            if stored[0] is not value:
                pairs[at] = value, stored[0]
    joints = _joints(pairs, block)
    told = {place: min(size, new.told[place]) for place, size in old.told.items() if place in new.told}
    for at, (here, there) in pairs.items():  # both paths reported what is one place from here on
        for of_write in (False, True):
            size = min(old.told.get((here, of_write), 0), new.told.get((there, of_write), 0))
            if size:
                told[joints.get(at, here), of_write] = size
    fresh = min(old.fresh, new.fresh)
    if not joints and len(slots) == len(old.slots) and told == old.told and fresh == old.fresh:
        return old
    registers = old.registers.copy()
    for at, joint in joints.items():
        if at in registers:
            registers[at] = joint
        else:
            slots[at] = joint, slots[at][1]
    return State(registers, slots, told, fresh, old.halves)


def _joints(pairs: dict[Any, tuple[Value, Value]], block: int) -> dict[Any, Value]:
    """Return the joined values for pairs of different values where paths join.

    Pairs whose values differ by the same amount, or by multiples of it, stay related.
    """
    found, moved = {}, {}
    for at, (old, new) in pairs.items():
        any_value = unknown("joint", block, at)
        if old.on_stack and new.on_stack:
            found[at] = unknown(STACK, block, at)
        elif old.on_stack or new.on_stack:
            found[at] = any_value
        elif old is not any_value:
            moved[at] = _difference(old, new)
    shared = Counter(difference for difference, _ in moved.values())
    for at, (difference, shift) in moved.items():
        old = pairs[at][0]
        mine = [u for u, _ in old.terms if u.kind == "joint"]
        joint = unknown("joint", block, difference)
        if joint.terms[0][0] in mine:
            continue  # every multiple of the difference was considered
        alone = shared[difference] == 1 or len(mine) >= MOST_JOINTS
        found[at] = unknown("joint", block, at) if alone else old.plus(joint, 1 << shift)
    return {at: joint for at, joint in found.items() if joint is not pairs[at][0]}


@cache
def _difference(old: Value, new: Value) -> tuple[Value, int]:
    """Return the difference divided by the largest power of two that divides it, and the exponent."""
    difference = new.plus(old, -1)
    factors = [factor for _, factor in difference.terms] + [difference.constant]
    shift = min((factor & -factor).bit_length() - 1 for factor in factors if factor)
    return difference.divided(shift), shift
