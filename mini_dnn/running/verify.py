"""Results against float64: in parts, so that the memory stays bounded, and from both ends of the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mini_dnn.ops import Arrays, Operation
from mini_dnn.ops.compare import Comparison, compare_all, merged

PART = 250  # entries of the batch that are compared at a time


def verify(
    operation: Operation,
    problem: Any,
    arrays: Arrays,
    outputs: Arrays,
    precision: str = "fp32",
    entries: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Compare outputs with float64.

    Parameters
    ----------
    arrays, outputs
        What was given, and the results that are to be checked, by name.
    precision
        What the variant claims: see `Operation.bound`.
    entries
        Compare only so many entries of the batch, half of them from each end; all if None.
    progress
        Called with the number of entries compared so far.
    """
    N = problem.batch
    some = entries is not None and entries < N
    chosen = np.r_[: entries // 2, N - (entries + 1) // 2 : N] if some and entries else np.arange(N)
    results = []
    for start in range(0, len(chosen), PART):
        part = chosen[start : start + PART]
        results.append(compare_entries(operation, problem, arrays, outputs, precision, part))
        if progress:
            progress(start + len(part))
    return merged(results)


def compare_entries(
    operation: Operation, problem: Any, arrays: Arrays, outputs: Arrays, precision: str, part: np.ndarray
) -> Comparison:
    """The comparison of some entries of the batch, with the indices that they have in the whole.

    Parameters
    ----------
    part
        Which entries: their numbers along the batch.

    Others are those of `verify`.
    """
    known = problem.arrays
    cut = problem.with_batch(len(part))
    given = {name: value[part] if known[name].split else value for name, value in arrays.items()}
    found = {name: value[part] if known[name].split else value for name, value in outputs.items()}
    expected, bound = operation.answer(cut, given), operation.bound(cut, given, precision)
    result = compare_all(found, expected, bound)
    if result.first is None or not known[result.array].split:
        return result
    return replace(result, first=(int(part[result.first[0]]), *result.first[1:]))
