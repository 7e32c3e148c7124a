"""Symbolic values of registers, precise enough to show that an access is where its hook was told.

A value is a sum of unknowns with factors and a constant, modulo 2^64. Equal computations give equal values,
so an address that is computed twice is recognised. Places on the stack are marked.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Any

MASK = (1 << 64) - 1
STACK = "stack"
WORD = 8  # bytes of a register
_numbers = count()
_bits: set[Value] = set()  # values that are 0 or 1
_wholes: dict[Value, Value] = {}  # by lower half: the registers that they are halves of


class Unknown:
    """An unknown quantity that has the same value wherever it appears. There is one object for each."""

    __slots__ = ("kind", "number")

    def __init__(self, kind: str) -> None:
        self.kind, self.number = kind, next(_numbers)

    def __lt__(self, other: Unknown) -> bool:
        """Order the terms of a sum."""
        return self.number < other.number


Terms = tuple[tuple[Unknown, int], ...]  # unknowns with factors, sorted


class Value:
    """A sum of unknowns with factors, and a constant. Equal sums are one object, so ``is`` compares them.

    Attributes
    ----------
    on_stack
        Whether it is a place on the stack, with any index.
    """

    __slots__ = ("constant", "on_stack", "terms")

    def __init__(self, terms: Terms, constant: int) -> None:
        self.terms, self.constant = terms, constant
        self.on_stack = [times for one, times in terms if one.kind == STACK] == [1]

    def plus(self, other: Value, factor: int = 1) -> Value:
        """Return the sum of this value and a multiple of another one."""
        if not other.terms:
            return _value(self.terms, self.constant + factor * other.constant & MASK)
        return _sum(self, other, factor)

    def divided(self, shift: int) -> Value:
        """Return this value divided by a power of two that divides all of its terms."""
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
    """Return the unknown that is computed from these parts, or that comes from there."""
    return _value(((Unknown(kind), 1),), 0)


def number(constant: int) -> Value:
    """Return a constant."""
    return _value((), constant & MASK)


@cache
def low(value: Value) -> Value:
    """Return the lower half of a register's value."""
    if not value.terms:
        return number(value.constant & 0xFFFFFFFF)
    half = unknown("half", value)
    _wholes[half] = value
    return half


@cache
def zero_extended(half: Value) -> Value:
    """Return the value of a register whose lower half was set."""
    if not half.terms:
        return half
    whole = _wholes.get(half)
    if whole and _is_small(whole):
        return whole
    found = unknown("zero-extended", half)
    return noted_bit(found) if is_bit(half) else found


def _is_small(value: Value) -> bool:
    """Whether the value is a bit times a number that fits in half a register."""
    parts = [n <= 0xFFFFFFFF and is_bit(_value(((one, 1),), 0)) for one, n in value.terms]
    return parts == [True] and not value.constant


def noted_bit(value: Value) -> Value:
    """Note that a value is 0 or 1, and return it."""
    _bits.add(value)
    return value


def is_bit(value: Value) -> bool:
    """Whether a value is known to be 0 or 1."""
    return value in _bits


def negative(value: Value, is_half: bool) -> Value | None:
    """Return the negated value of a register or of its lower half, or None if it is unknown."""
    if not is_half:
        return number(0).plus(value, -1)
    whole = zero_extended(value) if is_bit(value) else _wholes.get(value)
    return None if whole is None else low(number(0).plus(whole, -1))


def masked(mask: int, value: Value, is_half: bool) -> Value | None:
    """Return a negated bit under a mask: the mask or 0. For other values, the result is unknown.

    g++ 13 multiplies by a bit in this way. The access uses the product.
    """
    whole = _wholes.get(value) if is_half else value
    bit = None if whole is None else number(0).plus(whole, -1)
    if bit is None or not is_bit(bit):
        return None
    return low(number(0).plus(bit, mask & 0xFFFFFFFF)) if is_half else number(0).plus(bit, mask)
