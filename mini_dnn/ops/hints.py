"""What a wrong result looks like: the simple mistake that would give exactly this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from mini_dnn.ops.compare import PRECISIONS, compare_all, wrong_elements
from mini_dnn.ops.operation import Operation
from mini_dnn.ops.problem import Array, Arrays
from mini_dnn.ops.products import magnitudes

# The most that errors of sums in half are of their bound, as a root mean square. The bound of long sums is so
# wide that results which lack a term are within it, too
SUMS_IN_HALF = 0.1


def hint(operation: Operation, problem: Any, arrays: Arrays, found: Arrays, precision: str) -> str:
    """One sentence on what went wrong, or nothing.

    Parameters
    ----------
    arrays
        What was given.
    found
        The wrong outputs.
    """
    bound = operation.bound(problem, arrays, precision)
    for sentence, outputs in operation.mistakes(problem, arrays):
        if compare_all(found, outputs, _with_rounding(bound, found, outputs)).ok:
            return f"the result is the same as when {sentence}"
    expected = operation.answer(problem, arrays)
    wrong = {name: wrong_elements(found[name], expected[name], bound[name]) for name in expected}
    infinite = sum(int((np.isinf(found[name]) & where).sum()) for name, where in wrong.items())
    if infinite:
        return f"{infinite} elements are infinite: a value exceeded the range of the type (65,504 for half)"
    for lower in PRECISIONS[PRECISIONS.index(precision) + 1 :]:
        if _rounds(found, expected, operation.bound(problem, arrays, lower), lower):
            return (
                f"the result has the accuracy of {lower}, not of {precision}: a value is probably stored in a "
                "smaller type"
            )
    for name, array in problem.named("out").items():
        if array.in_gap(wrong[name]).any() and not array.without_gap(wrong[name]).any():
            return f"{name} has a gap of {array.gap} elements after each row, and the kernel writes into it"
        if where := tail(wrong[name], array, operation.axes):
            return f"{where}: check how the kernel handles the end of this axis"
    return ""


def _rounds(found: Arrays, expected: Arrays, bound: Arrays, precision: str) -> bool:
    """Whether errors look like those of a precision: they are within its bound, and most far within."""
    if not compare_all(found, expected, bound).ok:
        return False
    if precision != "fp16_sum":
        return True
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
    wrong = array.without_gap(wrong)
    letters = array.axes or "ijklmnop"[: wrong.ndim]
    for axis, letter in enumerate(letters):
        others = tuple(a for a in range(wrong.ndim) if a != axis)
        hit = np.flatnonzero(wrong.any(axis=others))
        size = wrong.shape[axis]
        if not 0 < len(hit) < size:
            continue
        name = f" ({axes[letter]})" if letter in axes else ""
        if hit[-1] == size - 1 and len(hit) == size - hit[0]:
            return f"all of them have {letter} >= {hit[0]}{name}"
        if hit[0] == 0 and len(hit) == hit[-1] + 1:
            return f"all of them have {letter} <= {hit[-1]}{name}"
    return ""
