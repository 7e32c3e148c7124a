"""The promises of each precision: the supported range of values, and the result outside of it.

Within the range, each element of an answer is within the bound of `Operation.bound`. Beyond the range, a sum
is an infinity or NaN, and never a wrong number. This module generates the table of docs/rules.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mini_dnn.ops.compare import wrong_elements
from mini_dnn.ops.operation import Operation
from mini_dnn.ops.problem import Arrays

HALF_MOST, FLOAT_MOST = 65504.0, float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Promise:
    """The promise of a precision about values, in addition to its error bound.

    Parameters
    ----------
    keeps
        The type or the number of bits that operands are rounded to, in words.
    least
        The smallest absolute value of an operand that keeps all digits.
    lost
        The largest error of an operand that is smaller than ``least``.
    most
        The largest finite operand. Larger ones count as infinite.
    sum_most
        The largest finite sum. A sum is infinite if it, or a part of it, is larger.
    spreads
        Whether an infinity or NaN may also affect other outputs of its entry of the batch: tensor cores
        multiply it by zeros that pad a tile.
    """

    keeps: str
    least: float
    lost: float
    most: float
    sum_most: float
    spreads: bool


PROMISES: Mapping[str, Promise] = {
    "fp32": Promise("fp32", 2.0**-126, 2.0**-150, FLOAT_MOST, FLOAT_MOST, False),
    "tf32": Promise("11 significant bits", 2.0**-126, 2.0**-137, FLOAT_MOST, FLOAT_MOST, False),
    "fp16": Promise("halves, 11 significant bits", 2.0**-14, 2.0**-25, HALF_MOST, FLOAT_MOST, True),
    "fp16_sum": Promise("halves, and so are sums", 2.0**-14, 2.0**-25, HALF_MOST, HALF_MOST, True),
}


def table() -> str:
    """The promises as a table in Markdown."""
    lines = [
        "| precision | operands are rounded to | full digits from | below that, error at most | "
        "operands up to | sums up to | an infinity or NaN affects |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, p in PROMISES.items():
        reaches = (
            "the sums that contain it, and possibly its whole entry"
            if p.spreads
            else "the sums that contain it"
        )
        lines.append(
            f"| `{name}` | {p.keeps} | {p.least:.1e} | {p.lost:.1e} | {_most(p.most)} | {_most(p.sum_most)} "
            f"| {reaches} |"
        )
    return "\n".join(lines)


def _most(value: float) -> str:
    return "65,504" if value == HALF_MOST else f"{value:.1e}"


def broken(operation: Operation, problem: Any, arrays: Arrays, outputs: Arrays, precision: str) -> str:
    """A description of the promise that these outputs break; empty if they break none.

    Parameters
    ----------
    arrays, outputs
        The inputs and the outputs of the operation.
    """
    promise = PROMISES[precision]
    with np.errstate(all="ignore"):
        expected, bound = operation.answer(problem, arrays), operation.bound(problem, arrays, precision)
        sizes = _sizes(operation, problem, arrays) if operation.sums else {}
    outside = _outside(problem, arrays, promise)
    for name, right in expected.items():
        found = outputs[name]
        wrong = wrong_elements(found, right, bound[name])
        if name in sizes:  # a part of the sum exceeds the range, even if the sum does not
            wrong &= np.isfinite(found) | (sizes[name] < promise.sum_most)
        if outside.any() and not (operation.sums and not promise.spreads):
            free = ~np.isfinite(found) | (not operation.sums)
            wrong &= ~(free & outside.reshape(-1, *[1] * (found.ndim - 1)))
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            return (
                f"{int(wrong.sum())} of {found.size} elements of {name} break the promise of {precision}; "
                f"the first is {problem.arrays[name].index(at)}: {found[at]:.8g}, expected {right[at]:.8g}"
            )
    return ""


def _sizes(operation: Operation, problem: Any, arrays: Arrays) -> Arrays:
    """The sums of the terms' absolute values; infinities and NaN count as 0, since outputs show them."""
    finite = {name: np.nan_to_num(np.abs(a), nan=0.0, posinf=0.0) for name, a in arrays.items()}
    return {name: np.abs(y) for name, y in operation.answer(problem, finite).items()}


def _outside(problem: Any, arrays: Arrays, promise: Promise) -> np.ndarray:
    """For each entry of the batch: whether a value that it depends on is outside of the range."""
    outside = np.zeros(problem.batch, bool)
    for name, values in arrays.items():
        array = problem.arrays[name]
        if values.dtype.kind == "f":
            beyond = ~(np.abs(array.without_gap(values)) <= promise.most)
            outside |= beyond.reshape(len(values), -1).any(axis=1) if array.split else beyond.any()
    return outside
