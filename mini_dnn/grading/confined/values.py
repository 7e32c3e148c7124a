"""What registers hold, in symbols: enough to tell that an access is at the place that its hook was told.

A value is a sum of unknowns with factors and a constant, modulo 2^64. Equal computations have equal
values, so an address that is worked out twice is recognised. Places on the stack are marked.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Any

MASK = (1 << 64) - 1
STACK = "stack"
WORD = 8  # bytes of a register
_numbers = count()
_bits: set[Value] = set()  # that are 0 or 1
_wholes: dict[Value, Value] = {}  # of lower halves: the registers that they are halves of


class Unknown:
    """What is not known, but the same wherever it stands: one object each."""

    __slots__ = ("kind", "number")

    def __init__(self, kind: str) -> None:
        self.kind, self.number = kind, next(_numbers)

    def __lt__(self, other: Unknown) -> bool:
        """The order of a sum's terms."""
        return self.number < other.number


Terms = tuple[tuple[Unknown, int], ...]  # with factors, sorted


class Value:
    """A sum: unknowns with factors, and a constant. There is one object for each, so that ``is`` compares.

    Attributes
    ----------
    on_stack
        Whether it is a place on the stack, with whatever index.
    """

    __slots__ = ("constant", "on_stack", "terms")

    def __init__(self, terms: Terms, constant: int) -> None:
        self.terms, self.constant = terms, constant
        self.on_stack = [times for one, times in terms if one.kind == STACK] == [1]

    def plus(self, other: Value, factor: int = 1) -> Value:
        """The sum with a multiple of another."""
        if not other.terms:
            return _value(self.terms, self.constant + factor * other.constant & MASK)
        return _sum(self, other, factor)

    def divided(self, shift: int) -> Value:
        """By a power of two that divides all of it."""
        return _value(tuple((u, n >> shift) for u, n in self.terms), self.constant >> shift)


@cache
def _value(terms: Terms, constant: int) -> Value:
    return Value(terms, constant)


@cache
def _sum(value: Value, other: Value, factor: int) -> Value:
    factors = dict(value.terms)
    for one, times in other.terms:
        factors[one] = factors.get(one, 0) + factor * times & MASK
    terms = tuple(sorted((u, n) for u, n in factors.items() if n))
    return _value(terms, value.constant + factor * other.constant & MASK)


@cache
def unknown(kind: str, *parts: Any) -> Value:
    """What is worked out from these parts, or comes from there."""
    return _value(((Unknown(kind), 1),), 0)


def number(constant: int) -> Value:
    """A constant."""
    return _value((), constant & MASK)


@cache
def low(value: Value) -> Value:
    """The lower half of a register."""
    if not value.terms:
        return number(value.constant & 0xFFFFFFFF)
    half = unknown("half", value)
    _wholes[half] = value
    return half


@cache
def zero_extended(half: Value) -> Value:
    """A register of which the lower half was set."""
    if not half.terms:
        return half
    whole = _wholes.get(half)
    if whole and _is_small(whole):
        return whole
    found = unknown("zero-extended", half)
    return noted_bit(found) if is_bit(half) else found


def _is_small(value: Value) -> bool:
    """Whether it is a bit times a number that half a register holds."""
    parts = [n <= 0xFFFFFFFF and is_bit(_value(((one, 1),), 0)) for one, n in value.terms]
    return parts == [True] and not value.constant


def noted_bit(value: Value) -> Value:
    """A value that is 0 or 1."""
    _bits.add(value)
    return value


def is_bit(value: Value) -> bool:
    """Whether it is known to be 0 or 1."""
    return value in _bits


def negative(value: Value, is_half: bool) -> Value | None:
    """The value with the other sign, of a register or its lower half; None: it is not known."""
    if not is_half:
        return number(0).plus(value, -1)
    whole = zero_extended(value) if is_bit(value) else _wholes.get(value)
    return None if whole is None else low(number(0).plus(whole, -1))


def masked(mask: int, value: Value, is_half: bool) -> Value | None:
    """A negative bit and a mask, which is the mask or 0: that of another value is not known.

    g++ 13 multiplies a bit so. The product is what the access has.
    """
    whole = _wholes.get(value) if is_half else value
    bit = None if whole is None else number(0).plus(whole, -1)
    if bit is None or not is_bit(bit):
        return None
    return low(number(0).plus(bit, mask & 0xFFFFFFFF)) if is_half else number(0).plus(bit, mask)
