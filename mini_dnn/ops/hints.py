"""Finds the simple mistake that would cause exactly this wrong result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from mini_dnn.ops.compare import PRECISIONS, compare_all, wrong_elements
from mini_dnn.ops.operation import Operation
from mini_dnn.ops.problem import Array, Arrays
from mini_dnn.ops.products import magnitudes
from mini_dnn.ops.promises import HALF_MOST

# The largest root mean square of the errors of sums in half, relative to their bound. The bound of long sums
# is so wide that results that lack a term are also within it.
SUMS_IN_HALF = 0.1
ACCURACY = "the result has the accuracy of "  # how the note about a lower precision begins
INFINITE = "elements are infinite: "  # what the note about infinities contains
SAME_AS = "the result is the same as when "  # how the note about a known mistake begins


def hint(operation: Operation, problem: Any, arrays: Arrays, found: Arrays, precision: str) -> str:
    """One sentence about the mistake, or an empty text.

    Parameters
    ----------
    arrays
        The inputs.
    found
        The wrong outputs.
    """
    bound, expected = operation.bound(problem, arrays, precision), operation.answer(problem, arrays)
    for sentence, outputs in operation.mistakes(problem, arrays):
        allowed = _with_rounding(bound, found, outputs)
        if compare_all(found, outputs, allowed).ok and not compare_all(expected, outputs, allowed).ok:
            return SAME_AS + sentence
    wrong = {name: wrong_elements(found[name], expected[name], bound[name]) for name in expected}
    infinite = sum(int((np.isinf(found[name]) & where).sum()) for name, where in wrong.items())
    if infinite:
        return (
            f"{infinite} {INFINITE}a value exceeded the range of its type (65,504 for half, 3.4e+38 for "
            "float), or was divided by zero"
        )
    for lower in PRECISIONS[PRECISIONS.index(precision) + 1 :]:
        if _rounds(found, expected, operation.bound(problem, arrays, lower), lower):
            return f"{ACCURACY}{lower}, not of {precision}: a value is probably stored in a smaller type"
    for name, array in problem.named("out").items():
        if array.in_gap(wrong[name]).any() and not array.without_gap(wrong[name]).any():
            return f"{name} has a gap of {array.gap} elements after each row, and the kernel writes into it"
        if where := tail(wrong[name], array, operation.axes):
            return where + _next(wrong[name], array)
    return ""


def _rounds(found: Arrays, expected: Arrays, bound: Arrays, precision: str) -> bool:
    """Whether errors look like those of a precision: they are within its bound, and most far within."""
    if not compare_all(found, expected, bound).ok:
        return False
    if precision != "fp16_sum":
        return True
    if any(np.nanmax(np.abs(found[name]), initial=0.0) > HALF_MOST for name in expected):
        return False  # a sum that was kept in half would be infinite there
    with np.errstate(all="ignore"):
        ratios = [np.square((found[name] - expected[name]) / bound[name]) for name in expected]
    return all(float(np.mean(ratio[np.isfinite(ratio)])) <= SUMS_IN_HALF**2 for ratio in ratios)


def _with_rounding(bound: Arrays, found: Arrays, mistaken: Arrays) -> Arrays:
    """The bound of a right result, and what rounding may take from a mistaken one, which may be larger."""
    allowed = {}
    for name, outputs in mistaken.items():
        size, dtype = magnitudes(outputs), found[name].dtype
        step = 0.0 if dtype.kind in "iu" else float(ml_dtypes.finfo(dtype).eps)
        allowed[name] = bound[name] + 2 * step * (size + size.mean())
    return allowed


def tail(wrong: np.ndarray, array: Array, axes: Mapping[str, str]) -> str:
    """``"all of them have q >= 16 (output column)"`` where the end or start of one axis tells them apart."""
    found = _edge(wrong, array)
    if found is None:
        return ""
    axis, at_end, place = found
    letter = (array.axes or "ijklmnop")[axis]
    name = f" ({axes[letter]})" if letter in axes else ""
    return f"all of them have {letter} {'>=' if at_end else '<='} {place}{name}"


def _next(wrong: np.ndarray, array: Array) -> str:
    """What to check of the axis whose end tells wrong elements apart."""
    match _edge(wrong, array):
        case _, True, 1:
            return ": check the offset along this axis, as only its first place is right"
        case _, True, _:
            return ": check how the kernel handles the end of this axis"
    return ""


def _edge(wrong: np.ndarray, array: Array) -> tuple[int, bool, int] | None:
    """The first axis whose end or start has all of the wrong elements: which end, and from or up to where."""
    wrong = array.without_gap(wrong)
    for axis, size in enumerate(wrong.shape):
        hit = np.flatnonzero(wrong.any(axis=tuple(a for a in range(wrong.ndim) if a != axis)))
        if not 0 < len(hit) < size:
            continue
        if hit[-1] == size - 1 and len(hit) == size - hit[0]:
            return axis, True, int(hit[0])
        if hit[0] == 0 and len(hit) == hit[-1] + 1:
            return axis, False, int(hit[-1])
    return None
