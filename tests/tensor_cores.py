"""The sum of a tensor core in exact fractions: slow, but as simple as the published rules.

P. Xie et al., "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores", arXiv:2511.10909.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np


@dataclass(frozen=True)
class Format:
    """A format of operands."""

    fraction_bits: int
    least: int  # exponent of the smallest normal number
    largest: int
    bits: type

    def values(self, bits: np.ndarray) -> np.ndarray:
        """The numbers as doubles. For tf32, the bits that are not read are dropped."""
        with np.errstate(invalid="ignore"):  # signalling NaN
            if self is HALF:
                return bits.view(np.float16).astype(float)
            if self is BFLOAT:
                return (bits.astype(np.uint32) << 16).view(np.float32).astype(float)
            return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(float)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The bits of numbers in this format, or of the closest ones."""
        with np.errstate(over="ignore"):
            if self is HALF:
                return values.astype(np.float16).view(np.uint16)
            bits = values.astype(np.float32).view(np.uint32)
        return (bits >> 16).astype(np.uint16) if self is BFLOAT else bits


HALF = Format(10, -14, 15, np.uint16)
BFLOAT = Format(7, -126, 127, np.uint16)
TF32 = Format(10, -126, 127, np.uint32)


@dataclass(frozen=True)
class Rules:
    """The rules of summation. The defaults are those of Hopper."""

    places: int = 25  # binary places that a term keeps after the point
    step: int = 16  # products that are added at once
    # Align by the products' own exponents, not by the sums of their factors' exponents
    aligned_products: bool = False
    of_a_zero: int = -133  # the exponent of a zero term


def exponent(x: float, least: int) -> int:
    """The exponent of the leading bit, but at least that of the smallest normal number."""
    return max(math.frexp(x)[1] - 1, least)


def one_step(
    a: Sequence[float], b: Sequence[float], c: float, leasts: tuple[int, int], rules: Rules
) -> Fraction | float:
    """The exact sum of truncated terms.

    ``leasts``: exponents of the smallest normal operands and of the smallest c.
    """
    special = sum((x * y for x, y in zip(a, b, strict=True)), c)
    if not math.isfinite(special):
        return special
    terms = [(Fraction(c), exponent(c, leasts[1]))]
    for x, y in zip(a, b, strict=True):
        product = exponent(x, leasts[0]) + exponent(y, leasts[0])
        if rules.aligned_products and x * y:
            product = exponent(x * y, -10000)
        terms.append((Fraction(x) * Fraction(y), product))
    largest = max(power if term else rules.of_a_zero for term, power in terms)
    unit = Fraction(2) ** (largest - rules.places)
    return sum(math.trunc(term / unit) for term, _ in terms) * unit


def rounded(x: Fraction | float, to_half: bool) -> float:
    """Round to half, to nearest even, or to float, toward zero. Zero becomes +0."""
    if not math.isfinite(x) or not x:
        return float(x)
    length = abs(Fraction(x))
    power = length.numerator.bit_length() - length.denominator.bit_length()
    power -= length < Fraction(2) ** power
    unit = Fraction(2) ** (max(power - 10, -24) if to_half else max(power - 23, -149))
    kept = float((round(length / unit) if to_half else length // unit) * unit)
    if kept > (65504 if to_half else float(np.finfo(np.float32).max)):
        kept = math.inf
    return math.copysign(kept, x)


@dataclass(frozen=True)
class Instruction:
    """A matrix instruction, as a kernel of ``kernels/tensor_cores.cu``."""

    kernel: str
    m: int
    n: int
    k: int
    operands: Format = HALF
    c: type = np.float32
    d: type = np.float32
    step: int = 16
    arch: int = 75

    def __str__(self) -> str:
        return self.kernel

    @property
    def in_cores(self) -> bool:
        """Whether the operands are stored as core matrices."""
        return self.kernel.startswith("wgmma")

    def sum(self, a: np.ndarray, b: np.ndarray, c: np.generic, rules: Rules | None = None) -> np.generic:
        """An element of d, from the bits of a row and of a column and the value of c that is added."""
        rules = rules or Rules(step=self.step)
        half_sums = self.c is self.d is np.float16
        leasts = self.operands.least, HALF.least if half_sums else TF32.least
        x, y = self.operands.values(a).tolist(), self.operands.values(b).tolist()
        total = float(c)
        for i in range(0, self.k, rules.step):
            part = slice(i, i + rules.step)
            total = rounded(one_step(x[part], y[part], total, leasts, rules), half_sums) + 0.0  # never -0
        if math.isnan(total):
            return np.array(0x7FFF if self.d is np.float16 else 0x7FFFFFFF, bits_of(self.d)).view(self.d)[()]
        return self.d(
            rounded(Fraction(total), True) if self.d is np.float16 and math.isfinite(total) else total
        )


def bits_of(kind: type) -> type:
    """The unsigned integer type of the same width."""
    return np.uint16 if kind is np.float16 else np.uint32


def alternatives(instruction: Instruction) -> list[Rules]:
    """Other rules that hardware might follow, and those of Hopper."""
    steps = [step for step in (4, 8, 16) if step <= instruction.k]
    hopper = Rules(step=instruction.step)
    return [
        *(Rules(places, step) for places in range(23, 28) for step in steps),
        *(replace(hopper, places=places, aligned_products=True) for places in (24, 25, 26)),
        *(replace(hopper, of_a_zero=exponent) for exponent in (-132, -126, -9999)),
    ]


INSTRUCTIONS = [
    Instruction("mma_k8", 16, 8, 8, step=8),
    Instruction("mma_k16", 16, 8, 16),
    Instruction("mma_bfloat", 16, 8, 16, BFLOAT, arch=80),
    Instruction("mma_tf32", 16, 8, 8, TF32, step=8, arch=80),
    Instruction("wmma_float", 16, 16, 16),
    Instruction("wmma_wide", 8, 32, 16),
    Instruction("wmma_tall", 32, 8, 16),
    Instruction("wmma_half", 16, 16, 16, c=np.float16, d=np.float16),
    Instruction("wmma_float_to_half", 16, 16, 16, d=np.float16),
    Instruction("wmma_half_to_float", 16, 16, 16, c=np.float16),
    Instruction("wmma_tf32", 16, 16, 8, TF32, step=4, arch=80),
    Instruction("wgmma_registers", 64, 24, 16, arch=90),
    Instruction("wgmma_half", 64, 64, 16, arch=90),
    Instruction("wgmma_bfloat", 64, 64, 16, BFLOAT, arch=90),
]
