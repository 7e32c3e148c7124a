"""Softmax of each row: ``y[n,l] = exp(x[n,l] - max) / sum over l of exp(x[n,l] - max)``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.ops.compare import CONFIDENCE, ROUND_OFF
from mini_dnn.ops.operation import Operation
from mini_dnn.ops.problem import Array, Arrays, Problem

STEEP = 40.0  # standard deviation of every other row: exp of such values overflows in fp32


@dataclass(frozen=True)
class Rows(Problem):
    """N rows of L values."""

    N: int
    L: int

    def __post_init__(self) -> None:
        if self.N < 1 or self.L < 1:
            raise ShapeError(f"softmax needs a row and a value in it; found N = {self.N}, L = {self.L}")

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The values as input, the probabilities as output."""
        shape = (self.N, self.L)
        return {"x": Array(shape, axes="nl"), "y": Array(shape, axes="nl", role="out")}

    @property
    def flops(self) -> int:
        """A comparison, a difference, a sum and a quotient per value; exponentials are not counted."""
        return 4 * self.N * self.L

    def __str__(self) -> str:
        """The text that commands print."""
        return f"{self.N:,} rows of {self.L:,}"


def arrays_of(x: np.ndarray) -> tuple[Rows, Arrays]:
    """The problem and the arrays for an array ``(N, L) float32``."""
    if x.ndim != 2 or x.dtype != np.float32:
        raise ShapeError(f"x is {x.shape} {x.dtype}; expected (N, L) float32")
    return Rows(*x.shape), {"x": np.ascontiguousarray(x)}


def softmax(x: np.ndarray) -> np.ndarray:
    """The float64 reference."""
    powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def bound(problem: Rows, arrays: Arrays, precision: str) -> Arrays:
    """The exponent's rounding error is the relative error of a power; errors of the sum are a random walk."""
    operand, accumulate = ROUND_OFF[precision]
    x = arrays["x"].astype(np.float64)
    top = x.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # -inf has the probability 0
        relative = 2 * operand * (np.abs(x) + np.abs(top))
        relative += CONFIDENCE * accumulate * (4 + top - x + np.sqrt(problem.L))
        allowed = np.nan_to_num(relative * softmax(x), nan=0.0, posinf=0.0)
    return {"y": allowed + np.finfo(np.float32).tiny}


def draw(problem: Rows, rng: np.random.Generator) -> Arrays:
    """Normally distributed values; those of every other row are scaled by STEEP."""
    x = rng.standard_normal((problem.N, problem.L), np.float32)
    x[1::2] *= np.float32(STEEP)
    return {"x": x}


def mistakes(problem: Rows, arrays: Arrays) -> Iterator[tuple[str, Arrays]]:
    """Results of typical mistakes."""
    x = arrays["x"].astype(np.float64)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    yield "the powers are not divided by their sum", {"y": powers}
    yield "the maximum and the sum are those of columns", {"y": softmax(x.T).T}
    for tile in (32, 256):
        if tile < problem.L:
            end = problem.L // tile * tile
            partial = powers / powers[:, :end].sum(axis=1, keepdims=True)
            yield f"the sum ends after {end} of its {problem.L} terms", {"y": partial}


OPERATION = Operation(
    name="softmax",
    about="softmax of each row, fp32",
    problem=Rows,
    answer=lambda problem, arrays: {"y": softmax(arrays["x"])},
    bound=bound,
    check=(Rows(1, 1), Rows(3, 7), Rows(5, 33), Rows(130, 5), Rows(4, 300), Rows(3, 1025)),
    large=(Rows(2_200_000, 1000),),
    course={"classes": Rows(100_000, 1000), "tokens": Rows(1000, 50_000)},
    of=arrays_of,
    traits={"L > 32 (a row is longer than a warp)": lambda p: p.L > 32},
    draw=draw,
    mistakes=mistakes,
    axes={"n": "row", "l": "place in the row"},
    cure="compare the maximum, the sum and the quotient of that row with y = exp(x - max) / sum",
    default="softmax/v1_warp",
    baseline="softmax/v0_naive",
)
