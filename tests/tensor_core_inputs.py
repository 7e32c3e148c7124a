"""Operands for which different ways of summation give different results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tensor_cores import HALF, TF32, Format, Instruction

# a, b and c as numbers; the first axis is that of the cases
Tiles = tuple[np.ndarray, np.ndarray, np.ndarray]
Draw = Callable[[np.random.Generator, int, Instruction], Tiles]


def numbers(
    rng: np.random.Generator, shape: tuple[int, ...], form: Format, low: int, high: int, full: bool = False
) -> np.ndarray:
    """Numbers of either sign with exponents in a range; subnormal ones have fewer digits.

    ``full``: all digits are 1.
    """
    power = rng.integers(max(low, form.least - form.fraction_bits), min(high, form.largest) + 1, shape)
    digits = np.clip(form.fraction_bits - np.maximum(form.least - power, 0), 0, None)
    fraction = 2.0**digits - 1 if full else np.floor(rng.random(shape) * 2.0**digits)
    return rng.choice([-1.0, 1.0], shape) * (1 + fraction * 2.0**-digits) * 2.0**power


def shapes(cases: int, i: Instruction) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return (cases, i.m, i.k), (cases, i.k, i.n), (cases, i.m, i.n)


def banded(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int], full: bool = False) -> Draw:
    """Operands with exponents in the given bands."""

    def draw(rng: np.random.Generator, cases: int, i: Instruction) -> Tiles:
        of_a, of_b, of_c = shapes(cases, i)
        x, y = numbers(rng, of_a, i.operands, *a, full), numbers(rng, of_b, i.operands, *b, full)
        # Digits of a float, of which a half keeps those that it can represent.
        return x, y, numbers(rng, of_c, TF32, *c) * (1 + rng.random(of_c) * 2.0**-10)

    return draw


def normal(rng: np.random.Generator, cases: int, i: Instruction) -> Tiles:
    of_a, of_b, of_c = shapes(cases, i)
    return rng.standard_normal(of_a), rng.standard_normal(of_b), 4 * rng.standard_normal(of_c)


def whole(rng: np.random.Generator, cases: int, i: Instruction) -> Tiles:
    """Small whole numbers, whose sums are exact."""
    of_a, of_b, of_c = shapes(cases, i)
    return rng.integers(-8, 9, of_a), rng.integers(-8, 9, of_b), rng.integers(-99, 100, of_c)


def one_sign(rng: np.random.Generator, cases: int, i: Instruction) -> Tiles:
    """Terms of one sign, which give the largest sums."""
    a, b, c = banded((0, 0), (0, 0), (0, 1), full=True)(rng, cases, i)
    return abs(a), abs(b) * rng.choice([-1.0, 1.0], (cases, 1, i.n)), c


def cancelling(rng: np.random.Generator, cases: int, i: Instruction) -> Tiles:
    """Products that cancel, except for an occasional last digit, with c as the remainder of a longer sum."""
    a, b, c = banded((-3, 3), (-3, 3), (-24, 4))(rng, cases, i)
    half = i.k // 2
    a[:, :, half:], b[:, half:] = -a[:, :, :half], b[:, :half]
    changed = rng.random(a.shape) < 0.1
    return np.where(changed, a * (1 + 2.0**-i.operands.fraction_bits), a), b, c


def sparse(rng: np.random.Generator, cases: int, i: Instruction) -> Tiles:
    """Operands that are mostly zeros of either sign."""
    tiles = banded((-20, 20), (-20, 20), (-40, 40))(rng, cases, i)
    return tuple(x * (rng.random(x.shape) < 0.25) for x in tiles)  # type: ignore[return-value]


def zeros(rng: np.random.Generator, cases: int, i: Instruction) -> Tiles:
    """Zeros of either sign. In some cases all zeros of a column and of c are negative."""
    of_a, of_b, of_c = shapes(cases, i)
    a, b, c = (rng.choice([-0.0, 0.0], shape) for shape in (of_a, of_b, of_c))
    a[::2], c[::2], b[::2, :, ::2] = 0.0, -0.0, -0.0
    return a, b, c


def special(rng: np.random.Generator, cases: int, i: Instruction) -> Tiles:
    """Operands with some infinities, NaN and zeros."""
    tiles = banded((-3, 3), (-3, 3), (-3, 3))(rng, cases, i)
    odd = np.array([np.inf, -np.inf, np.nan, 0.0])
    return tuple(np.where(rng.random(x.shape) < 0.03, rng.choice(odd, x.shape), x) for x in tiles)  # type: ignore[return-value]


def families(i: Instruction) -> dict[str, Draw]:
    """The distributions of operands, by name."""
    form = i.operands
    any_exponent = form.least - form.fraction_bits, form.largest
    found: dict[str, Draw] = {
        "normal": normal,
        "whole": whole,
        "near": banded((-2, 2), (-2, 2), (-4, 8)),
        "apart": banded((-7, 3), (-7, 3), (-30, 12)),
        "c decides": banded((-4, 4), (-4, 4), (12, 40)),
        "c is small": banded((-1, 1), (-1, 1), (-30, -20)),
        "halves' range": banded((-24, 15), (-24, 15), (-40, 40)),
        "one sign": one_sign,
        "cancelling": cancelling,
        "sparse": sparse,
        "zeros": zeros,
        "special": special,
        "all exponents": banded(any_exponent, any_exponent, (-149, 127)),
        "below normal": banded((form.least - 10, form.least), (form.least - 10, form.least + 20), (-49, -20)),
    }
    if form is not HALF:
        found["around the least float"] = banded((-90, -40), (-95, -35), (-149, -120))
        found["all far below"] = lambda rng, cases, i: (
            *banded((-90, -60), (-90, -60), (0, 0))(rng, cases, i)[:2],
            np.zeros(shapes(cases, i)[2]),
        )
        found["huge"] = banded((50, 70), (50, 70), (100, 127))
    if i.d is np.float16:
        found["beyond half"] = banded((2, 7), (2, 7), (8, 15))
        found["below half"] = banded((-14, -8), (-14, -8), (-24, -14))
    return found


def draw(i: Instruction, cases: int) -> tuple[list[str], Tiles]:
    """Draw ``cases`` cases of each family.

    Return the family of each case, the bits of the operands, and c.
    """
    rng = np.random.default_rng(7)
    names, parts = [], []
    for name, family in families(i).items():
        a, b, c = family(rng, cases, i)
        with np.errstate(over="ignore"):
            parts.append((i.operands.encode(a), i.operands.encode(b), c.astype(i.c)))
        names += [name] * cases
    a, b, c = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if i.operands is TF32:  # bits that are not read
        a, b = (x | rng.integers(0, 2**13, x.shape).astype(np.uint32) for x in (a, b))
    return names, (a, b, c)


def cores(x: np.ndarray) -> np.ndarray:
    """Matrices (cases, rows, 16) as core matrices of eight rows by eight k, in order of k first."""
    cases, rows, _ = x.shape
    return np.ascontiguousarray(x.reshape(cases, rows // 8, 8, 2, 8).swapaxes(2, 3))
