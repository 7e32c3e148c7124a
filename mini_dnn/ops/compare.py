"""The comparison with float64 that every check uses, and the error bounds of the precisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from mini_dnn.errors import VariantError
from mini_dnn.ops.problem import Arrays

# Unit round-off of the operands in products, and of the accumulation. The most exact precision comes first.
ROUND_OFF = {
    "fp32": (0.0, 2.0**-24),
    "tf32": (2.0**-11, 2.0**-23),
    "fp16": (2.0**-11, 2.0**-23),
    "fp16_sum": (2.0**-11, 2.0**-11),
}
PRECISIONS = tuple(ROUND_OFF)
HALVES = ("fp16", "fp16_sum")  # their operands have the range of half; TF32 has the range of fp32
HALF_SUBNORMAL = 2.0**-25  # the largest error of rounding an operand below the normal range of half
# The largest error of rounding an operand that is subnormal in its type
LOST = {"fp32": 0.0, "tf32": 2.0**-137, "fp16": HALF_SUBNORMAL, "fp16_sum": HALF_SUBNORMAL}
CONFIDENCE = 6.0  # standard deviations


@dataclass(frozen=True)
class Comparison:
    """The difference between a result and its reference."""

    elements: int
    differing: int  # outside of the bound, or infinite or NaN where float64 is not
    first: tuple[int, ...] | None  # indices of the first differing element
    found: float  # its value, or that of the element with the largest error
    expected: float
    max_error: float  # largest absolute error among the finite elements
    worst_ratio: float  # largest error as a fraction of its bound: up to 1 is right
    array: str = ""  # the output of `first`
    audit: str = ""  # what is wrong with elements that were not compared one by one
    how: str = ""  # which elements were compared, if not all

    @property
    def ok(self) -> bool:
        """Whether every element is within its bound, or equal to float64 if that is not finite."""
        return self.differing == 0 and not self.audit

    def __str__(self) -> str:
        """A description in one line."""
        how = f"; {self.how}" if self.how else ""
        if self.ok:
            return f"max error {self.max_error:.2e}, {self.worst_ratio:.0%} of the bound{how}"
        if self.differing == 0:
            return f"{self.audit}{how}"
        most = f"; max error {self.max_error:.2e}" if self.max_error else ""  # 0 if none of them is finite
        return (
            f"{self.differing} of {self.elements} elements differ from float64; the first at {self.first}: "
            f"found {self.found:.8g}, expected {self.expected:.8g}{most}{how}"
        )


def dot_product_bound(absolute: np.ndarray, terms: int, largest: float, precision: str) -> np.ndarray:
    """The largest error that sums of products may have.

    For each sum, ``(2 u + c sqrt(K) v) sum |a b|``: u the round-off of the operands, v that of the
    accumulation, whose errors add up like a random walk over the K terms [1]_. An answer in a lower
    precision exceeds the bound.

    Parameters
    ----------
    absolute
        The sums of the products' absolute values, float64. Operands that are infinite or NaN count as 0 here
        and in ``largest``: they do not change the bound of other sums.
    terms
        K, the number of products in a sum.
    largest
        The largest operand of one side plus that of the other. The error of operands that are subnormal in
        the type of the precision is proportional to it.

    References
    ----------
    .. [1] N. J. Higham, T. Mary, "A new approach to probabilistic rounding error analysis",
       SIAM J. Sci. Comput. 41(5), 2019.
    """
    operand, accumulate = ROUND_OFF[precision]
    bound = (2 * operand + CONFIDENCE * np.sqrt(terms) * accumulate) * absolute
    return bound + LOST[precision] * terms * largest + np.finfo(np.float32).tiny


def compare(y: np.ndarray, expected: np.ndarray, bound: np.ndarray) -> Comparison:
    """Compare a result with its float64 reference, element by element: see `wrong_elements`."""
    wrong = wrong_elements(y, expected, bound)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        error = np.abs(y - expected)
        error[~np.isfinite(error)] = 0.0
        ratio = np.where(error > 0, error / bound, 0.0)  # a bound of 0 means exact
    differing = int(wrong.sum())
    at = int(np.argmax(wrong)) if differing else int(np.argmax(ratio))
    return Comparison(
        elements=y.size,
        differing=differing,
        first=tuple(int(i) for i in np.unravel_index(at, y.shape)) if differing else None,
        found=float(y.flat[at]),
        expected=float(expected.flat[at]),
        max_error=float(error.max()),
        worst_ratio=float(ratio.max()),
    )


def compare_all(found: Arrays, expected: Arrays, bound: Arrays) -> Comparison:
    """Compare all outputs of a problem; the indices are those of the first array that differs.

    Raises
    ------
    VariantError
        An output has no answer or no bound, so it cannot be compared.
    """
    for what, arrays in (("answer", expected), ("bound", bound)):
        if set(arrays) != set(found):
            raise VariantError(
                f"the {what} of the operation has {', '.join(arrays)}; expected all outputs: "
                f"{', '.join(found)}. Complete what {what} returns in the operation's file in mini_dnn/ops"
            )
    return merged([replace(compare(found[n], expected[n], bound[n]), array=n) for n in expected])


def wrong_elements(found: np.ndarray, expected: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """A mask of the wrong elements.

    Finite elements are right if they are within the bound. If float64 has NaN or an infinity, a right result
    has the same. It is also infinite if float64 has a number beyond the range of its type, such as 70,000 in
    half.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        wrong = np.asarray(~(np.abs(found - expected) <= bound))
        odd = ~(np.isfinite(found) & np.isfinite(expected))
    if odd.any():
        y, right = found[odd], expected[odd]
        beyond = np.isinf(right) | (np.abs(right) + bound[odd] > largest(found.dtype))
        alike = np.isinf(y) & beyond & (np.signbit(y) == np.signbit(right))
        wrong[odd] = ~(alike | (np.isnan(y) & np.isnan(right)))
    return wrong


def largest(dtype: np.typing.DTypeLike) -> float:
    """The largest number of a type, whole or floating-point."""
    is_whole = np.dtype(dtype).kind in "iu"
    return float(np.iinfo(dtype).max if is_whole else ml_dtypes.finfo(dtype).max)


def merged(results: Sequence[Comparison]) -> Comparison:
    """One comparison from several: the first one that differs, or else the one closest to its bound."""
    failed = [result for result in results if not result.ok]
    shown = failed[0] if failed else max(results, key=lambda result: result.worst_ratio)
    return replace(
        shown,
        elements=sum(result.elements for result in results),
        differing=sum(result.differing for result in results),
        max_error=max(result.max_error for result in results),
        worst_ratio=max(result.worst_ratio for result in results),
    )
